"""Hugging Face's `generate` decodes with the weights of a model directory of regard.

The model is a MarianMTModel, which is the paper's Transformer, called as its users call it: fp32,
batches of sentences of similar length.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from decoding_task import BOS, EOS, LONGEST, PAD, arguments, in_turn, read_model, read_sentences
from transformers import MarianConfig, MarianMTModel
from worker import Turn, serve

OURS = {
    "model.": "",
    "layers.": "",
    "self_attn_layer_norm": "add_norm_1.norm",
    "encoder_attn_layer_norm": "add_norm_2.norm",
    "self_attn.": "self_attention.",
    "encoder_attn.": "cross_attention.",
    "q_proj": "W_q",
    "k_proj": "W_k",
    "v_proj": "W_v",
    "out_proj": "W_o",
    "fc1": "feed_forward.W_1",
    "fc2": "feed_forward.W_2",
}
"""Parts of Marian's names for weights, and of ours."""


def convert(directory: Path) -> MarianMTModel:
    """A Marian model that computes what a model of regard does."""
    recipe, weights = read_model(directory)
    embedding, positions = weights["embedding.tokens.weight"], weights["embedding.positions"]
    config = MarianConfig(
        vocab_size=len(embedding),
        d_model=recipe["d_model"],
        max_position_embeddings=len(positions),
        encoder_layers=recipe["layers"],
        decoder_layers=recipe["decoder_layers"],
        encoder_attention_heads=recipe["heads"],
        decoder_attention_heads=recipe["heads"],
        encoder_ffn_dim=recipe["d_ff"],
        decoder_ffn_dim=recipe["d_ff"],
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        decoder_start_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6

    def ours(name: str) -> np.ndarray:
        if name == "final_logits_bias":
            return np.zeros((1, len(embedding)), dtype=np.float32)
        if "embed_positions" in name:
            return positions
        if "embed_tokens" in name or name in ("model.shared.weight", "lm_head.weight"):
            return embedding
        last = "add_norm_3.norm" if "decoder" in name else "add_norm_2.norm"
        for theirs, equivalent in {**OURS, "final_layer_norm": last}.items():
            name = name.replace(theirs, equivalent)
        return weights[name]

    model.load_state_dict({name: torch.tensor(ours(name)) for name in model.state_dict()})
    return model


def padded(sources: Sequence[list[int]]) -> torch.Tensor:
    width = max(map(len, sources))
    return torch.tensor([source + [PAD] * (width - len(source)) for source in sources])


def start() -> tuple[dict[str, Any], Turn]:
    parser = arguments()
    parser.add_argument("--batch", type=int, default=32, help="sentences in a batch")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = convert(args.model)
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
