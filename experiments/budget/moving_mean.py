"""Compare equal means of a run's checkpoints with exponential moving means of them.

    python experiments/budget/moving_mean.py RUN DATA

RUN is a run directory; DATA is its prepared data. Each line has the loss of a mean, and its BLEU on
the whole validation set with beam 4 and alpha 1.2. With a half-life of h steps, a checkpoint
that is h steps older counts half.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard.measure.validation import validator
from regard.run.beginning import begun
from regard.run.checkpoints import opened, paths
from regard.run.model_directory import build
from regard.text.opening import open_tokenizer

EQUAL = (1, 3, 5, 7, 9)
HALF_LIVES = (100, 200, 400, 800, 1600)
SENTENCES = 10_000  # more than any validation set has here


def main() -> None:
    """Print the loss and the BLEU of each mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    given = parser.parse_args()
    recipe, tokenizer = begun(given.run), open_tokenizer(given.run)
    assert recipe is not None, f"{given.run} is not a run directory"
    checkpoints = sorted(map(opened, paths(given.run / "checkpoints")), key=lambda one: one.step)
    weights = [one.weights() for one in checkpoints]
    validate = validator(
        given.data, recipe.but(validate_sentences=SENTENCES, beam=4, alpha=1.2, best="loss")
    )
    for name, counts in means([one.step for one in checkpoints]):
        found = validate(build(recipe, tokenizer, mean(weights, counts), given.run))
        sys.stdout.write(f"{name:16} loss {found['loss']:.4f}  BLEU {found['bleu']:.2f}\n")
        sys.stdout.flush()


def means(steps: Sequence[int]) -> Iterator[tuple[str, list[float]]]:
    """The name of each mean, and how much each checkpoint counts in it."""
    for last in EQUAL:
        yield f"equal, last {last}", [float(i >= len(steps) - last) for i in range(len(steps))]
    for half in HALF_LIVES:
        yield f"half-life {half}", [2 ** ((step - steps[-1]) / half) for step in steps]


def mean(weights: Sequence[dict[str, Tensor]], counts: Sequence[float]) -> dict[str, Tensor]:
    """The weighted mean of each weight, summed in fp64."""
    found = {name: torch.zeros(one.shape, dtype=torch.float64) for name, one in weights[0].items()}
    for one, count in zip(weights, counts, strict=True):
        for name, tensor in one.items():
            found[name] += tensor.double() * (count / sum(counts))
    return {name: total.float() for name, total in found.items()}


if __name__ == "__main__":
    main()
