"""The plan of a run: its size, and the time and memory that a short trial measures.

The trial trains a new model, which is then discarded. It changes neither the run directory nor the
state of this process's random number generators.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from regard.arithmetic.choose import load_loops
from regard.cost import Cost, flop
from regard.data.batches import Batch, BatchShare
from regard.data.largest import largest_batch
from regard.data.layouts import most_rows
from regard.data.training_data import batches_of, training_pairs
from regard.errors import TrainingError
from regard.machine.compiled import forget_programs
from regard.machine.devices import (
    free_memory,
    random_numbers_kept,
    tells_full_memory,
    wait_for,
)
from regard.machine.memory import free_bytes, peak_bytes, restart_peak
from regard.machine.processes import ALONE, OutOfMemory, Processes
from regard.machine.speed import single_precision_speed
from regard.measure.outline import Outline, outline
from regard.paper import BASE
from regard.recipe import Recipe
from regard.run import checkpoints
from regard.run.setup import Setup
from regard.schedule import learning_rate
from regard.steps import steps_for
from regard.training import update

MOST_STEPS, MOST_SECONDS = 5, 60.0
"""Timing ends after this many steps, or when they have taken this many seconds."""
PROBED = 8
"""On a CPU, the system may kill a process that runs out of memory. So the trial first divides a
batch into smaller parts: PROBED times as many parts as for a step. It measures the largest of these
small parts. From this measurement, it estimates the memory that the larger parts of a step need."""


@dataclass(frozen=True)
class Plan(Outline):
    """The size of a run, and its memory and time on this machine, with the given processes."""

    device: str
    dtype: str
    processes: int
    room: int
    """Bytes of the device's memory that were free for this process before the trial."""
    part: tuple[int, int, int]
    """Shape of the largest part of a batch: rows, source tokens and target tokens of a row."""
    part_memory: int
    """The most bytes that learning from `part` needed besides `memory`, which is always in use."""
    micro_batches: int
    """Number of parts into which each process must divide its share of a batch."""
    paper_micro_batches: int
    """The value of `micro_batches` for a step with the paper's 25,000 + 25,000 tokens."""
    paper_accumulate: int
    """Number of recipe batches that together have about as many tokens as a step of the paper."""
    timed: int
    """Number of steps that were timed."""
    step_seconds: float
    """Median time of a step, without validation and saving."""
    steps: int
    steps_left: int
    flop_per_step: float
    """Mean number of operations of a step in all processes together, as `cost.flop` counts them."""
    single_precision_flop_per_second: float
    """The measured speed of one process in a matrix product in fp32."""

    @property
    def seconds_left(self) -> float:
        """Seconds until the last step is done, without validation and saving."""
        return self.steps_left * self.step_seconds

    @property
    def cost(self) -> Cost:
        """The cost of all steps: counted operations, and numbers for the estimate of Table 2."""
        return Cost(
            counted_flop=self.steps * self.flop_per_step,
            seconds=self.steps * self.step_seconds,
            devices=self.processes,
            single_precision_flop_per_second=self.single_precision_flop_per_second,
        )


def plan(
    recipe: Recipe,
    data: Path,
    out: Path,
    processes: Processes = ALONE,
    micro_batches: int | None = None,
    shard: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> Plan:
    """Plan a run in the directory `out` on prepared data; the run may have begun already.

    With several processes, each must call this function; with `shard`, the processes divide weights
    and moments among themselves. The trial first divides each process's share of a batch into
    `micro_batches` parts, by default one. `tell` is called with messages about the trial. Raises
    TrainingError if not even one row fits the memory, or if PyTorch is too old to divide a model;
    and the errors of `Setup.open`, `steps_for` and `checkpoints.paths`.
    """
    setup = Setup.open(recipe, data, processes, shard=shard)
    outlined = outline(setup, out)
    with random_numbers_kept(setup.device):
        trial = _Trial(setup, sum(outlined.memory), tell)
        least = setup.share(1).parts
        parts, part, taken = trial.fitting(least * (micro_batches or 1))
        seconds = trial.times(parts)
    tokens = min(recipe.data.source_tokens, recipe.data.target_tokens)
    paper_accumulate = max(1, round(BASE.data.source_tokens / tokens))
    paper_least = BatchShare.even(0, processes.count, paper_accumulate, 1).parts
    lengths = setup.pairs.source_lengths, setup.pairs.target_lengths
    once = sum(flop(recipe.model, setup.tokenizer.size, *lengths))
    an_epoch = recipe.training.passes * once
    plain = recipe.but(subword_dropout=0.0)  # with sub-word dropout, batches differ between epochs
    epoch = batches_of(training_pairs(data, plain), plain).batches_per_epoch
    steps = recipe.training.steps
    if recipe.training.minutes:
        steps = min(steps, round(60 * recipe.training.minutes / median(seconds)))
    done = map(checkpoints.step_of, checkpoints.paths(out / "checkpoints"))
    return Plan(
        **vars(outlined),
        device=str(setup.device),
        dtype=str(setup.dtype).removeprefix("torch."),
        processes=processes.count,
        room=trial.room,
        part=(*part.source.ids.shape, part.target.ids.shape[1]),
        part_memory=taken,
        micro_batches=parts // least,
        paper_micro_batches=-(-parts // paper_least),
        paper_accumulate=paper_accumulate,
        timed=len(seconds),
        step_seconds=median(seconds),
        steps=steps,
        steps_left=max(0, steps - max(done, default=0)),
        flop_per_step=an_epoch / epoch * recipe.training.accumulate,
        single_precision_flop_per_second=single_precision_speed(setup.device),
    )


class _Trial:
    """A new model, which is trained as `train` trains a model, measured and then discarded."""

    def __init__(self, setup: Setup, kept: int, tell: Callable[[str], None]):
        self.setup, self.kept, self.tell = setup, kept, tell
        self.recipe, self.device, self.processes = setup.recipe, setup.device, setup.processes
        load_loops(self.device)  # load compiled code now: a step's memory must not include it
        free_memory(self.device)
        self.room, self._before = free_bytes(self.device), restart_peak(self.device)
        self.model, self.optimizer = setup.model_and_optimizer()
        self.optimizer.give(self.processes.give)
        # With --shard, each process had the whole model until `give` divided it. The peak of the
        # memory must not include the whole model.
        restart_peak(self.device)
        self._steps = steps_for(
            self.model, self.optimizer, self.recipe, self.device, setup.dtype, self.tell
        )

    def fitting(self, parts: int) -> tuple[int, Batch, int]:
        """Double `parts` until the largest part of a batch fits the memory.

        Returns the number of parts, the largest part, and the bytes that a step on this part needs
        besides weights, gradients and moments. Raises TrainingError if not even one row fits.
        """
        bytes_of_a_slot = 0.0
        if not tells_full_memory(self.device):
            small = self._largest(PROBED * parts)
            bytes_of_a_slot = (self._taken_by(small) or 0) / small.slots
        while True:
            part = self._largest(parts)
            self.tell(f"trying a batch of {part.source.ids.numel():,} source tokens, the largest")
            too_large = self.kept + bytes_of_a_slot * part.slots > self.room
            taken = None if self.processes.sum(too_large)[0] else self._taken_by(part)
            if taken is not None:
                return parts, part, taken
            if parts >= most_rows(self.recipe.data):
                raise TrainingError(
                    "not even one row of a batch fits the memory: lower data.row_length, "
                    "data.max_length or the size of the model"
                )
            self.tell("it does not fit the memory: trying half of it")
            parts *= 2

    def _largest(self, parts: int) -> Batch:
        entries = min(self.setup.tokenizer.size, self.setup.tokenizer.source_size)
        join = self.recipe.joins_pairs
        return largest_batch(self.setup.pairs, self.recipe.data, entries, parts, join=join)

    def _taken_by(self, batch: Batch) -> int | None:
        """Return the bytes that a step on a batch needs besides weights, gradients and moments.

        With several processes, the result is the largest number of bytes that any of them needs.
        Returns None if memory runs out.
        """
        try:
            self._step([batch])
        except OutOfMemory:
            forget_programs(self.device)
            restart_peak(self.device)
            return None
        grown = peak_bytes(self.device) - self._before
        return max(0, *self.processes.all(grown - self.kept))

    def times(self, parts: int) -> list[float]:
        """Time some training steps on real batches; return the seconds of each.

        With several processes, a step takes as long as in the slowest process.
        """
        share = BatchShare(self.processes.rank, self.processes.count, parts)
        batches = batches_of(self.setup.pairs, self.recipe, share)
        self.tell("timing steps on the data")
        seconds: list[float] = []
        while len(seconds) < MOST_STEPS and sum(seconds) < MOST_SECONDS:
            some = batches.take(self.recipe.training.accumulate)
            begin = time.perf_counter()
            self._step(some)
            seconds.append(max(self.processes.all(time.perf_counter() - begin)))
        return seconds

    def _step(self, batches: Sequence[Batch]) -> None:
        """Make one update, and wait until the device has finished it."""
        training = self.recipe.training
        rate = learning_rate(1, self.recipe.model.d_model, training.warmup_steps, training.rate)
        some = [batch.to(self.device) for batch in batches]
        update(self._steps, self.optimizer, some, rate, self.processes)
        wait_for(self.device)
