"""Hugging Face's `generate` decodes what `regard export hf` wrote.

The model is a MarianMTModel, which is the paper's Transformer, called as its users call it: fp32,
batches of sentences of similar length.
"""

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from decoding_task import BOS, EOS, LONGEST, PAD, arguments, in_turn, read_sentences
from transformers import MarianMTModel
from worker import Turn, serve


def padded(sources: Sequence[list[int]]) -> torch.Tensor:
    width = max(map(len, sources))
    return torch.tensor([source + [PAD] * (width - len(source)) for source in sources])


def start() -> tuple[dict[str, Any], Turn]:
    parser = arguments()
    parser.add_argument("--batch", type=int, default=32, help="sentences in a batch")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = MarianMTModel.from_pretrained(args.exported).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6  # Marian's is 1e-5
    lengths = {"max_new_tokens": args.length or LONGEST - 1}
    if args.length:
        lengths["min_new_tokens"] = args.length

    @torch.no_grad()
    def translate(sources: list[list[int]]) -> list[list[int]]:
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        outputs: list[list[int]] = [[] for _ in sources]
        for first in range(0, len(order), args.batch):
            some = order[first : first + args.batch]
            ids = padded([sources[i] for i in some])
            found = model.generate(
                input_ids=ids,
                attention_mask=(ids != PAD).long(),
                num_beams=args.beam,
                length_penalty=args.alpha,
                do_sample=False,
                **lengths,
            )
            for i, tokens in zip(some, found.tolist(), strict=True):
                outputs[i] = [token for token in tokens if token not in (PAD, BOS, EOS)]
        return outputs

    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    about = {"name": "Marian", "version": versions, "precision": "float32"}
    return about, in_turn(args, read_sentences(args, "pieces"), translate)


if __name__ == "__main__":
    serve(start)
