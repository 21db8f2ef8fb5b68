"""A row of Table 2; unless it is a Transformer, BLEU decides its learning rate and dropout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from regard.parts.kept import Figures, Measured, Task, numbers_of
from regard.recipe import Recipe
from regard.reproduce.rows import row_task, run_of, train_row
from regard.reproduce.scales import data_in

RATES = (2.0, 0.5)
"""Factors of the row's own learning rate; each product is a further learning rate to try."""
DROPOUTS = (0.0, 0.2)
"""The dropout probabilities that are tried besides the row's own."""


@dataclass(frozen=True)
class TriedRow:
    """A row that tries one or more recipes with the first seed; other seeds train the best recipe.

    Each run trains one recipe. The figures of a run are kept under its name (`parts.kept`).
    """

    name: str
    tried: Mapping[str, Recipe]
    """The recipes by the names of their runs. The row's own recipe is first; its run has the name
    `name`, like the row."""
    first: int
    """The first seed. All recipes are trained with it; other seeds train only the best recipe."""

    @property
    def recipe(self) -> Recipe:
        """The row's own recipe; other tried recipes differ from it in learning rate or dropout."""
        return self.tried[self.name]

    @property
    def recipes(self) -> dict[str, Recipe]:
        """The recipe of each run by name; for the run `chosen_run`, a substitute.

        The run `chosen_run` trains the best recipe, which is known only after all recipes are
        tried. Its substitute is the first recipe: all tried recipes have the same size and number
        of steps, so the plan and the progress of the run are the same with any of them.
        """
        chosen = {self.chosen_run: self.recipe} if len(self.tried) > 1 else {}
        return {**self.tried, **chosen}

    @property
    def chosen_run(self) -> str:
        """The name of the run that trains the best recipe with a seed other than the first."""
        return f"{self.name}-chosen"

    @property
    def test_part(self) -> str:
        """The name of the part (`parts.kept`) that translates unseen sentences with this row."""
        return f"unseen-chosen-{self.name}" if len(self.tried) > 1 else f"unseen-{self.name}"

    def runs(self, seed: int) -> tuple[str, ...]:
        """The names of the runs with this seed."""
        chosen = len(self.tried) > 1 and seed != self.first
        return (self.chosen_run,) if chosen else tuple(self.tried)

    def figures(self, numbers: Figures, seed: int) -> dict[str, Measured | None]:
        """The figures of each run with this seed; None for a run that is not finished."""
        return {run: numbers.get((run, seed)) for run in self.runs(seed)}

    def best_figures(self, numbers: Figures, seed: int) -> Measured | None:
        """The figures of the best run with this seed; None until all runs are finished."""
        found = self.figures(numbers, seed)
        best = best_run(found)
        return None if best is None else found[best]

    def best_run_in(self, out: Path, seed: int) -> str | None:
        """The name of the best run with this seed in `out`; None until all runs are finished."""
        return best_run({run: numbers_of(out, run, seed) for run in self.runs(seed)})

    def tasks(self, out: Path, seed: int) -> list[Task]:
        """The trainings of this row with a seed, in the directory `out`."""
        tasks = [
            row_task(out, run, seed, recipe, data_in(out)) for run, recipe in self.tried.items()
        ]
        if self.chosen_run not in self.runs(seed):
            return tasks
        settings = "the best of " + " ".join(task.settings for task in tasks)
        work = partial(train_chosen, self, out, seed)
        return [Task(self.chosen_run, seed, settings, work, tasks[0].cost)]

    def tried_bleu(self, numbers: Figures) -> str:
        """A text: each tried learning rate and dropout, and its BLEU on the development set."""
        told = []
        for run, recipe in self.tried.items():
            found = numbers.get((run, self.first))
            bleu = "not finished" if found is None else f"{found['bleu']:.2f}"
            told.append(f"{recipe.training.rate:.3g} and {recipe.model.dropout:g}: {bleu}")
        return f"{self.name} {', '.join(told)}"


def tried_row(name: str, recipe: Recipe, first: int) -> TriedRow:
    """The row of a recipe, with the learning rates and dropouts to try with the seed `first`.

    Each recipe that is tried besides `recipe` differs from it in the learning rate or the dropout.
    For a Transformer, only `recipe` is trained: its learning rate and dropout are the paper's, or
    they were chosen together with the other settings of the scale.
    """
    tried = {name: recipe}
    if recipe.model.family != "transformer":
        rate = recipe.training.rate
        tried |= {f"{name}-rate-{factor:g}": recipe.but(rate=factor * rate) for factor in RATES}
        tried |= {f"{name}-dropout-{one:g}": recipe.but(dropout=one) for one in DROPOUTS}
    return TriedRow(name, tried, first)


def train_chosen(row: TriedRow, out: Path, seed: int) -> Measured | None:
    """Train the best recipe of a row with a seed that is not the first; return the run's figures.

    Returns None, and trains nothing, if a recipe has not been trained with the first seed yet.
    """
    best = row.best_run_in(out, row.first)
    if best is None:
        return None
    recipe = row.tried[best].but(seed=seed)
    return train_row(run_of(out, row.chosen_run, seed), data_in(out), recipe)


def best_run(found: Mapping[str, Measured | None]) -> str | None:
    """The run with the highest BLEU of the development set; None if any run is not finished."""
    bleu = {run: figures["bleu"] for run, figures in found.items() if figures is not None}
    return max(bleu, key=bleu.__getitem__) if len(bleu) == len(found) else None
