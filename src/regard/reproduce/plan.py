"""The plan of a study: parameters, operations, time and disk of each row, and the cost of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace

from regard.amounts import BYTES, SECONDS, amount
from regard.cost import flop
from regard.machine.cores import usable_cores
from regard.machine.devices import choose_device, computes_beside
from regard.machine.speed import single_precision_speed
from regard.paper import BASE, BASE_TIME, BIG_TIME, parameters
from regard.recipe import Recipe
from regard.reproduce.tables import Experiment, Study, all_tasks

SENTENCE = 25
"""The length of a sentence, in tokens, that is assumed when operations are counted."""
_CHECKPOINT, _MODEL = 12, 4
"""Bytes on the disk for each parameter, in a checkpoint and in the final model."""


@dataclass(frozen=True)
class PlannedRow:
    """A row that is to be trained, and the computing, time and disk that one training takes."""

    name: str
    trainings: int
    """How often the row is trained: once for each seed that the tables need."""
    parameters: int
    steps: int
    flop: float
    """Floating-point operations of a training."""
    seconds: float
    """Seconds of a training in one process, at this machine's speed of large matrix products."""
    disk: int
    """The size of the checkpoints and the final model in a run directory at the end, in bytes."""

    @property
    def p100_hours(self) -> float:
        """Hours of a training on the eight P100 of §5.2.

        The speed is that of the paper's training of the base model.
        """
        return BASE_TIME.hours * self.flop / _flop_of(BASE)


def planned_rows(
    study: Study, experiments: Sequence[Experiment], processes: int
) -> list[PlannedRow]:
    """The rows that the tables train; a row of several tables is listed once.

    The time follows from this machine's speed at products of large matrices in fp32, which this
    function measures. If several processes share the work, one thread is measured, because each
    process computes with one thread. Models with smaller matrices are slower; models in bf16 may be
    faster. Raises the errors of `choose_device` and of `Scale.base`.
    """
    speed = single_precision_speed(choose_device(), 1 if processes > 1 else 0)
    trainings = Counter(task.part for task in all_tasks(study, experiments))
    recipes: dict[str, Recipe] = {}
    for one in experiments:
        recipes |= one.recipes(study)
    return [
        _planned(name, trainings[name], recipe, speed)
        for name, recipe in recipes.items()
        if trainings[name]
    ]


def _planned(name: str, trainings: int, recipe: Recipe, speed: float) -> PlannedRow:
    count = parameters(recipe.model, recipe.tokenizer.vocabulary)
    operations = _flop_of(recipe)
    by, steps = recipe.training, recipe.training.steps
    # The last step may get a checkpoint that serves only to resume, besides those that are kept.
    extra = by.save_every > 0 and steps % by.save_every > 0 and not by.averages_last
    disk = count * (_CHECKPOINT * (by.keep + extra) + _MODEL)
    return PlannedRow(name, trainings, count, steps, operations, operations / speed, disk)


def _flop_of(recipe: Recipe) -> float:
    """The operations of a run, if sentences of SENTENCE tokens fill 90 % of each batch."""
    data, training, vocabulary = recipe.data, recipe.training, recipe.tokenizer.vocabulary
    tokens = 0.9 * min(data.source_tokens, data.target_tokens) * training.accumulate
    of_a_pair = sum(flop(recipe.model, vocabulary, [SENTENCE], [SENTENCE]))
    return training.steps * training.passes * of_a_pair * tokens / SENTENCE


def plan_lines(
    study: Study, experiments: Sequence[Experiment], processes: int, price: float | None
) -> list[str]:
    """The plan in words: a line for each row, the sums and, if `price` is given, the cost.

    `processes` is how many processes share the work. `price` is the price of one hour of this
    machine, in any currency. Raises the errors of `choose_device` and of `Scale.base`.
    """
    rows = planned_rows(study, experiments, processes)
    width = max((len(row.name) for row in rows), default=0)
    form = "{:<{width}} {:>12} {:>9} {:>11} {:>11} {:>11} {:>14}"
    head = ("row", "parameters", "steps", "operations", "here", "disk", "on eight P100")
    lines = [form.format(*head, width=width)]
    lines += [
        form.format(
            row.name,
            f"{row.parameters:,}",
            f"{row.steps:,}",
            f"{row.flop:.2e}",
            amount(row.seconds, SECONDS),
            amount(row.disk, BYTES),
            amount(3600 * row.p100_hours, SECONDS),
            width=width,
        )
        for row in rows
    ]
    seconds = _seconds_of_all(rows, processes)
    gpus = sum(row.trainings * row.p100_hours for row in rows)
    disk = sum(row.trainings * row.disk for row in rows)
    trainings = sum(row.trainings for row in rows)
    count = (
        f"{trainings} training{'s' * (trainings != 1)} of {len(rows)} row{'s' * (len(rows) != 1)}"
    )
    here = f"{amount(seconds, SECONDS)} here in {processes} process{'es' * (processes > 1)}"
    there = f"{amount(3600 * gpus, SECONDS)} on eight P100"
    lines.append(f"{count}: {here}, or {there}; {amount(disk, BYTES)} of disk, besides the text")
    if any(row.name == "big" and row.steps == BIG_TIME.steps for row in rows):
        days = f"{BIG_TIME.hours / 24:g} days"
        lines.append(f"eight P100: at the speed of the paper's base; its big took {days} (§5.2)")
    if price is not None:
        lines.append(f"at {price:g} an hour of this machine: {price * seconds / 3600:,.2f}")
    return lines


def _seconds_of_all(rows: Sequence[PlannedRow], processes: int) -> float:
    """Seconds until all trainings are done, if each free process begins the longest training left.

    More processes than cores save no time. On a GPU, more than one process saves no time.
    """
    useful = 1 if computes_beside(choose_device()) else min(processes, usable_cores())
    ends = [0.0] * useful
    for seconds in sorted(
        (row.seconds for row in rows for _ in range(row.trainings)), reverse=True
    ):
        heapreplace(ends, ends[0] + seconds)
    return max(ends)
