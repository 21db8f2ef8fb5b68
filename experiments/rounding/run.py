"""What 16 and 8 bits cost: BLEU of one model's translations in each precision.

    python experiments/rounding/run.py MODEL --source FILE --reference FILE

fp32, bf16 and int8 are translated as `regard translate --precision` does. Weights of 7 and of 8
bits are also rounded in the obvious way, in fp32, so that both are there whatever this processor
has. Prints JSON.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.arithmetic.packed import largest_weight
from regard.run.model_directory import open_model
from regard.score.bleu import bleu
from regard.translation import Translator, load


class Rounded(nn.Module):
    """What Int8Linear computes, in fp32: x in 127 steps up from zero, the weights in `largest`."""

    def __init__(self, weight: Tensor, bias: Tensor | None, largest: int):
        super().__init__()
        self.weight, self.bias = rounded(weight.detach(), largest), bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(rounded(x, 127), self.weight, self.bias)


def rounded(rows: Tensor, largest: int) -> Tensor:
    step = (rows.abs().amax(-1, keepdim=True) / largest).clamp(min=1e-30)
    return (rows / step).round() * step


def obvious(directory: Path, largest: int) -> Translator:
    model = open_model(directory, torch.float32)
    model.transformer.pack(partial(Rounded, largest=largest), torch.float32)
    recipe = model.recipe
    return Translator(model.transformer, model.tokenizer, recipe.search, recipe.data.max_length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    args = parser.parse_args()
    sentences, reference = (
        file.read_text(encoding="utf-8").splitlines() for file in (args.source, args.reference)
    )
    ways = {name: partial(load, args.model, precision=name) for name in ("fp32", "bf16", "int8")}
    ways |= {
        f"weights to {largest}, rounded in fp32": partial(obvious, args.model, largest)
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
