"""The cost of 16 and of 8 bits: BLEU of one model's translations in each precision.

    python experiments/rounding/run.py MODEL --source FILE --reference FILE

The model translates in fp32, bf16 and int8, as with `regard translate --precision`. Besides, it
translates in fp32 with weights rounded to 8 and to 7 bits, so that both are measured whichever of
the two int8 uses on this processor. Prints JSON.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arithmetic.inference import Inference
from regard.arithmetic.layouts import LaidOut, largest_weight
from regard.files.lines import read_lines
from regard.run.model_directory import open_model
from regard.score.bleu import bleu
from regard.translation import Translator, load


class Rounded:
    """Computes in fp32, but rounds as Int8Linear does.

    A row of x is rounded to multiples of 1/127 of its largest absolute value, and a row of weights
    to multiples of 1/`largest`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, largest: int):
        self.weight = rounded(weight.detach(), largest)
        self.bias = None if bias is None else bias.detach()

    def __call__(self, by: Any, x: Tensor, relu: bool = False) -> Tensor:
        """x W^T + b; with `relu`, 0 where that is negative."""
        y = F.linear(rounded(x, 127), self.weight, self.bias)
        return y.relu_() if relu else y


def rounded(rows: Tensor, largest: int) -> Tensor:
    step = (rows.abs().amax(-1, keepdim=True) / largest).clamp(min=1e-30)
    return (rows / step).round() * step


def rounding(directory: Path, largest: int) -> Translator:
    """A translator that computes in fp32 with `Rounded` products."""
    model = open_model(directory, torch.float32)
    transformer, recipe = model.network, model.recipe
    products = LaidOut(transformer, transformer.embedding.tokens, partial(Rounded, largest=largest))
    transformer.compute_by(Inference(products, torch.float32))
    return Translator(transformer, model.tokenizer, recipe.search, recipe.data.max_length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    args = parser.parse_args()
    sentences, reference = (list(read_lines(file)) for file in (args.source, args.reference))
    ways = {name: partial(load, args.model, precision=name) for name in ("fp32", "bf16", "int8")}
    ways |= {
        f"weights to {largest}, rounded in fp32": partial(rounding, args.model, largest)
        for largest in (127, 64)
    }
    exactly: list[str] = []
    record: dict[str, Any] = {
        "model": args.model.name,
        "source": args.source.name,
        "sentences": len(sentences),
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "largest weight of int8": largest_weight(),
        "precisions": {},
    }
    for name, way in ways.items():
        found = way().translate(sentences)
        exactly = exactly or found
        same = sum(one == other for one, other in zip(found, exactly, strict=True))
        score = round(bleu(found, [reference]), 2)
        one = {"BLEU": score, "as in fp32": round(same / len(found), 3)}
        record["precisions"][name] = one
        sys.stderr.write(f"{name}: {one}\n")
    sys.stdout.write(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
