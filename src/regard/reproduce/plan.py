"""The plan of a study: parameters, operations, time, cost and disk of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.amounts import BYTES, SECONDS, amount
from regard.cost import flop
from regard.machine.devices import choose_device
from regard.machine.speed import single_precision_speed
from regard.paper import BASE, BASE_TIME, parameters
from regard.recipe import Recipe
from regard.reproduce.tables import Experiment, Study

SENTENCE = 25
"""The assumed length of a sentence in tokens, from which operations are computed."""
_CHECKPOINT, _MODEL = 12, 4
"""Bytes on the disk for each parameter, in a checkpoint and in the final model."""


@dataclass(frozen=True)
class PlannedRow:
    """A row that is to be trained, and what its training takes for each seed."""

    name: str
    parameters: int
    steps: int
    flop: float
    """Floating-point operations of the training."""
    seconds: float
    """Seconds of the training in one process, at this machine's speed of large matrix products."""
    disk: int
    """The size of the run directory at the end, in bytes."""

    @property
    def p100_hours(self) -> float:
        """Hours on the eight P100 of §5.2, at the speed of the paper's base model there."""
        base = _flop_of(BASE, BASE.tokenizer.vocabulary)
        return BASE_TIME.hours * self.flop / base


def planned_rows(study: Study, experiments: Sequence[Experiment]) -> list[PlannedRow]:
    """The rows that the tables train; a row of several tables is listed once.

    The time follows from this machine's speed at products of large matrices in fp32, which this
    function measures. Models with smaller matrices are slower; models in bf16 may be faster.
    """
    speed = single_precision_speed(choose_device())
    recipes: dict[str, Recipe] = {}
    for one in experiments:
        recipes |= one.recipes(study)
    return [_planned(name, recipe, speed) for name, recipe in recipes.items()]


def _planned(name: str, recipe: Recipe, speed: float) -> PlannedRow:
    vocabulary = recipe.tokenizer.vocabulary
    count, operations = parameters(recipe.model, vocabulary), _flop_of(recipe, vocabulary)
    disk = count * (_CHECKPOINT * recipe.training.keep + _MODEL)
    steps = recipe.training.steps
    return PlannedRow(name, count, steps, operations, operations / speed, disk)


def _flop_of(recipe: Recipe, vocabulary: int) -> float:
    """The operations of a run whose batches are nine tenths full."""
    data, training = recipe.data, recipe.training
    tokens = 0.9 * min(data.source_tokens, data.target_tokens) * training.accumulate
    of_a_pair = sum(flop(recipe.model, vocabulary, [SENTENCE], [SENTENCE]))
    return training.steps * training.passes * of_a_pair * tokens / SENTENCE


def plan_lines(
    study: Study, experiments: Sequence[Experiment], processes: int, price: float | None
) -> list[str]:
    """The plan in words: a line for each row, the sums and, if `price` is given, the cost.

    `processes` is how many processes share the work. `price` is the price of one hour of this
    machine, in any currency.
    """
    rows, seeds = planned_rows(study, experiments), len(study.seeds)
    form = "{:<14} {:>12} {:>9} {:>11} {:>11} {:>11} {:>14}"
    lines = [
        form.format("row", "parameters", "steps", "operations", "here", "disk", "on eight P100")
    ]
    lines += [
        form.format(
            row.name,
            f"{row.parameters:,}",
            f"{row.steps:,}",
            f"{row.flop:.2e}",
            amount(row.seconds, SECONDS),
            amount(row.disk, BYTES),
            amount(3600 * row.p100_hours, SECONDS),
        )
        for row in rows
    ]
    hours = seeds * sum(row.seconds for row in rows) / 3600 / processes
    gpus = seeds * sum(row.p100_hours for row in rows)
    disk = seeds * sum(row.disk for row in rows)
    count = f"{len(rows)} rows of {seeds} seed{'s' * (seeds > 1)}"
    here = f"{amount(3600 * hours, SECONDS)} here in {processes} process{'es' * (processes > 1)}"
    there = f"{amount(3600 * gpus, SECONDS)} on eight P100"
    lines.append(f"{count}: {here}, or {there}; {amount(disk, BYTES)} of disk, besides the text")
    if price is not None:
        lines.append(f"at {price:g} an hour of this machine: {price * hours:,.2f}")
    return lines
