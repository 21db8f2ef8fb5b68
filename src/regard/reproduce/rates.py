"""A row of Table 2 and its learning rate, which is chosen on the development set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from regard.recipe import Recipe
from regard.study.kept import Figures, Measured

FACTORS = (1.0, 0.5, 0.25)
"""The learning rates that are tried, as multiples of base's."""


@dataclass(frozen=True)
class TriedRow:
    """A row that is trained once with each learning rate, for each seed."""

    name: str
    tried: Mapping[str, Recipe]
    """The recipe with each learning rate, by the name of its runs; the first has base's rate."""

    @property
    def recipe(self) -> Recipe:
        """The recipe with the learning rate of base."""
        return self.tried[self.name]

    @property
    def test(self) -> str:
        """The name of the part that translates unseen sentences with this row."""
        return f"unseen-best-{self.name}" if len(self.tried) > 1 else f"unseen-{self.name}"

    def figures(self, numbers: Figures, seed: int) -> dict[str, Measured | None]:
        """The figures of each run with this seed; None for a run that is not finished."""
        return {run: numbers.get((run, seed)) for run in self.tried}

    def trained(self, numbers: Figures, seed: int) -> Measured | None:
        """The figures of the best run with this seed; None until all runs are finished."""
        found = self.figures(numbers, seed)
        best = best_run(found)
        return None if best is None else found[best]

    def told(self, numbers: Figures, seeds: Sequence[int]) -> str:
        """Each learning rate, and the mean BLEU of the development set with it."""
        parts = []
        for run, recipe in self.tried.items():
            bleu = [one["bleu"] for seed in seeds if (one := numbers.get((run, seed)))]
            mean = f"{fmean(bleu):.2f}" if bleu else "not finished"
            parts.append(f"{recipe.training.rate:.3g}: {mean}")
        return f"{self.name} {', '.join(parts)}"


def tried_row(name: str, recipe: Recipe) -> TriedRow:
    """The row of a recipe. A Transformer is trained with the rate of the recipe only.

    That rate is the paper's, or it was chosen together with the other settings of the scale.
    """
    if recipe.model.family == "transformer":
        return TriedRow(name, {name: recipe})
    tried = {}
    for factor in FACTORS:
        run = name if factor == 1 else f"{name}-rate-{factor:g}"
        tried[run] = recipe.but(rate=factor * recipe.training.rate)
    return TriedRow(name, tried)


def best_run(found: Mapping[str, Measured | None]) -> str | None:
    """The run with the highest BLEU of the development set; None if one is not finished."""
    bleu = {run: figures["bleu"] for run, figures in found.items() if figures is not None}
    return max(bleu, key=bleu.__getitem__) if len(bleu) == len(found) else None
