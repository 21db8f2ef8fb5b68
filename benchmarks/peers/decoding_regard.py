"""regard decodes as its users call it: load a model directory, translate lines of text."""

from typing import Any

import torch
from decoding_task import arguments, in_turn, read_sentences
from worker import Turn, serve

import regard
from regard.machine.devices import keep_freed_memory
from regard.recipe import Recipe

PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}


def start() -> tuple[dict[str, Any], Turn]:
    args = arguments().parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()  # as `regard translate` does
    translator = regard.load(args.model, precision=args.precision)
    translator.recipe = Recipe().but(beam=args.beam, alpha=args.alpha).search
    if args.alone:
        translator.prepare_few_rows()  # as `regard serve` does
    if args.length:  # a random model does not end its outputs before
        translator.model.embedding.longest = args.length
    about = {
        "name": "regard",
        "version": {"regard": regard.__version__, "torch": torch.__version__},
        "precision": PRECISIONS[args.precision],
    }
    return about, in_turn(args, read_sentences(args, "text"), translator.translate)


if __name__ == "__main__":
    serve(start)
