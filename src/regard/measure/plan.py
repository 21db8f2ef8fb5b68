"""What training by a recipe takes: counted where that is exact, and otherwise tried.

The trial is of a model of its own, drawn at random and thrown away: it reads prepared data, and
leaves no trace in a run directory, nor in the random numbers of this process.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.arithmetic.choose import choose_dtype, load_loops
from regard.data.batches import Batch, BatchShare
from regard.data.largest import largest_batch
from regard.data.layouts import most_rows
from regard.data.pairs import Pairs
from regard.data.prefetch import batches_of
from regard.errors import TrainingError
from regard.machine.devices import choose_device, free_memory, refuse_too_large
from regard.machine.memory import free_bytes, peak_bytes, restart_peak
from regard.machine.processes import ALONE, OutOfMemory, Processes
from regard.paper import BASE
from regard.recipe import ModelRecipe, Recipe
from regard.run import checkpoints
from regard.run.sharding import model_and_optimizer
from regard.schedule import learning_rate
from regard.steps import steps_for
from regard.text.tokenizer import Tokenizer
from regard.training import update
from regard.transformer import Transformer

MOST_STEPS, MOST_SECONDS = 5, 60.0
"""Steps are timed up to so many, or until so long has passed."""
PROBED = 8
"""A CPU that runs out of memory is not refused, it is killed: so first so small a part is tried."""
JOURNAL_LINE = 300
"""Bytes of a logged step."""


class Parameters(NamedTuple):
    """Learned numbers."""

    embedding: int
    """One matrix for source, target and softmax, and positions where they are learned."""
    encoder: int
    decoder: int

    @classmethod
    def of(cls, model: ModelRecipe, vocabulary: int) -> "Parameters":
        """Those of the modules themselves, which are not allocated for it."""
        with torch.device("meta"):
            whole = Transformer(model, vocabulary)
        parts: list[Any] = [whole.embedding, whole.encoder, whole.decoder]
        return cls(*(sum(p.numel() for p in part.parameters()) for part in parts))


class Memory(NamedTuple):
    """Bytes that a process keeps from step to step: see FlatAdam, and ShardedAdam."""

    weights: int
    """What the products read, where that is not the master itself, nor gathered from it."""
    master: int
    """Weights in fp32."""
    gradient: int
    """Of the latest batch, and in fp32 the sum of a step's; divided, only this."""
    moments: int

    @classmethod
    def of(cls, parameters: int, dtype: torch.dtype, shards: int = 1) -> "Memory":
        """Of so many parameters in this arithmetic, divided among `shards` processes or whole."""
        if shards > 1:
            return cls(*(size * -(-parameters // shards) for size in (0, 4, 4, 8)))
        copy = 0 if dtype == torch.float32 else dtype.itemsize
        each = cls(copy, 4, dtype.itemsize + 4, 8)
        return cls(*(size * parameters for size in each))


class Disk(NamedTuple):
    """Bytes on the disk of a run directory."""

    checkpoint: int
    checkpoints: int
    """How many there are at once: those kept, and the one that is being written."""
    present: int
    """Checkpoints that are there already."""
    model: int
    journal: int
    free: int

    @property
    def needed(self) -> int:
        """What the run will still take."""
        more = max(0, self.checkpoints - self.present)
        return more * self.checkpoint + self.model + self.journal

    @classmethod
    def of(cls, recipe: Recipe, parameters: int, out: Path) -> "Disk":
        """Of a run in `out`, which need not exist yet."""
        place = next(p for p in (out, *out.absolute().parents) if p.is_dir())
        return cls(
            checkpoint=12 * parameters,  # weights and two moments, in fp32
            checkpoints=recipe.training.keep + 1,
            present=len(checkpoints.paths(out / "checkpoints")),
            model=4 * parameters,
            journal=JOURNAL_LINE * (recipe.training.steps // recipe.training.log_every),
            free=shutil.disk_usage(place).free,
        )


class Flop(NamedTuple):
    """Floating-point operations of training on some sentence pairs, each once."""

    weights: int
    """Products with weights: the projections, feed-forward networks and logits."""
    attention: int
    """Q K^T and its product with V. The decoder's future positions count: all compute them."""


def flop(
    model: ModelRecipe,
    vocabulary: int,
    sources: Sequence[int] | NDArray[Any],
    targets: Sequence[int] | NDArray[Any],
) -> Flop:
    """Of pairs with so many tokens each, padding apart.

    A multiply-add is two operations. Only matrix products are counted, from the sizes of §3; the
    backward pass has two of them for each of the forward pass.
    """
    source, target = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    d, keys, values = model.d_model, model.heads * model.d_k, model.heads * model.d_v
    attention, feed_forward = 2 * d * (keys + values), 2 * d * model.d_ff
    source_token = model.layers * (attention + feed_forward + d * (keys + values))  # of memory
    target_token = model.layers * (attention + feed_forward + d * (keys + values)) + vocabulary * d
    weights = int(source.sum()) * source_token + int(target.sum()) * target_token
    scores = int((source * source + target * target + target * source).sum())
    return Flop(6 * weights, 6 * model.layers * (keys + values) * scores)


@dataclass(frozen=True)
class Outline:
    """What can be told without trying anything."""

    parameters: Parameters
    memory: Memory
    disk: Disk


def outline(
    recipe: Recipe, vocabulary: int, dtype: torch.dtype, out: Path, shards: int = 1
) -> Outline:
    """Of a run in the directory `out`, divided among so many processes; takes milliseconds."""
    parameters = Parameters.of(recipe.model, vocabulary)
    count = sum(parameters)
    return Outline(parameters, Memory.of(count, dtype, shards), Disk.of(recipe, count, out))


@dataclass(frozen=True)
class Plan(Outline):
    """What a run takes on this machine, with the processes that there are."""

    device: str
    dtype: str
    processes: int
    room: int
    """Bytes of the device's memory that were free for a process before it began."""
    part: tuple[int, int, int]
    """Rows of the largest part of a batch that is learned from at once, and their lengths in
    source and target tokens."""
    part_memory: int
    """Bytes that learning from it took at most, beyond what is kept."""
    micro_batches: int
    """Parts in which a process has to learn from its share of a batch."""
    paper_micro_batches: int
    paper_accumulate: int
    """What makes the paper's 25,000 + 25,000 tokens of a step from the recipe's batches."""
    timed: int
    """Steps that were timed."""
    step_seconds: float
    """The median of a step, without validations and saves."""
    steps: int
    steps_left: int
    flop_per_step: float
    """Of all processes, on average; see `flop`."""

    @property
    def seconds_left(self) -> float:
        """To the last step."""
        return self.steps_left * self.step_seconds

    @property
    def flop(self) -> float:
        """From the first step to the last."""
        return self.steps * self.flop_per_step


def plan(
    recipe: Recipe,
    data: Path,
    out: Path,
    processes: Processes = ALONE,
    micro_batches: int | None = None,
    shard: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> Plan:
    """Plan the training on prepared data in the run directory `out`, begun or not.

    Of several processes each calls it; with `shard` they divide weights and moments. `tell` hears
    what is being tried. Raises as a run does where the recipe or data cannot be trained, and
    TrainingError where not even a row fits the memory.
    """
    pairs = Pairs.open(data, "train")
    vocabulary = Tokenizer.load(data / "tokenizer.json").size
    device = choose_device()
    dtype = choose_dtype(recipe.training.precision, device)
    batches = batches_of(pairs, recipe)
    shards = processes.count if shard else 1
    outlined = outline(recipe, vocabulary, dtype, out, shards)
    refuse_too_large(sum(outlined.parameters), device, shards)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        kept = sum(outlined.memory)
        trial = _Trial(recipe, pairs, vocabulary, device, dtype, processes, shard, kept, tell)
        least = BatchShare.even(0, processes.count, recipe.training.accumulate, 1).parts
        parts, part, taken = trial.fitting(least * (micro_batches or 1))
        seconds = trial.times(parts)
    tokens = min(recipe.data.source_tokens, recipe.data.target_tokens)
    paper_accumulate = max(1, round(BASE.data.source_tokens / tokens))
    paper_least = BatchShare.even(0, processes.count, paper_accumulate, 1).parts
    an_epoch = sum(flop(recipe.model, vocabulary, pairs.source_lengths, pairs.target_lengths))
    return Plan(
        **vars(outlined),
        device=str(device),
        dtype=str(dtype).removeprefix("torch."),
        processes=processes.count,
        room=trial.room,
        part=(*part.source.ids.shape, part.target.ids.shape[1]),
        part_memory=taken,
        micro_batches=parts // least,
        paper_micro_batches=-(-parts // paper_least),
        paper_accumulate=paper_accumulate,
        timed=len(seconds),
        step_seconds=median(seconds),
        steps=recipe.training.steps,
        steps_left=max(0, recipe.training.steps - _steps_done(out)),
        flop_per_step=an_epoch / batches.batches_per_epoch * recipe.training.accumulate,
    )


def _steps_done(out: Path) -> int:
    """By the newest checkpoint of a run directory; 0 where there is none."""
    found = checkpoints.paths(out / "checkpoints")
    return int(found[-1].name.removeprefix("step-")) if found else 0


@dataclass
class _Trial:
    """A model to be thrown away, on which training is tried as `train` does it."""

    recipe: Recipe
    pairs: Pairs
    vocabulary: int
    device: torch.device
    dtype: torch.dtype
    processes: Processes
    shard: bool
    kept: int
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        load_loops(self.device)  # they take memory, too, which is not a step's
        free_memory(self.device)
        self.room, self._before = free_bytes(self.device), restart_peak(self.device)
        self.model, self.optimizer = model_and_optimizer(
            self.recipe, self.vocabulary, self.dtype, self.device, self.processes, self.shard
        )
        self.optimizer.give(self.processes.give)
        restart_peak(self.device)  # at first it was whole
        self._steps = steps_for(
            self.model, self.optimizer, self.recipe, self.device, self.dtype, self.tell
        )

    def fitting(self, parts: int) -> tuple[int, Batch, int]:
        """Into how many parts each batch must be cut: `parts`, or twice as many, and so on.

        With the largest part, and the bytes that it took beyond what is kept.
        """
        bytes_of_a_slot = self._bytes_of_a_slot(PROBED * parts)
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

    def _bytes_of_a_slot(self, parts: int) -> float:
        """On a CPU, where what does not fit is not refused but killed: by a small part."""
        if self.device.type != "cpu":
            return 0.0
        part = self._largest(parts)
        return (self._taken_by(part) or 0) / part.slots

    def _largest(self, parts: int) -> Batch:
        return largest_batch(self.pairs, self.recipe.data, self.vocabulary, parts)

    def _taken_by(self, batch: Batch) -> int | None:
        """Bytes beyond what is kept, in the process that took most; None where they run out."""
        try:
            self._step([batch])
        except OutOfMemory:
            free_memory(self.device)
            restart_peak(self.device)
            return None
        grown = peak_bytes(self.device) - self._before
        return max(0, *self.processes.all(grown - self.kept))

    def times(self, parts: int) -> list[float]:
        """Seconds of some steps on the data, in the slowest process."""
        share = BatchShare(self.processes.rank, self.processes.count, parts)
        batches = batches_of(self.pairs, self.recipe, share)
        self.tell("timing steps on the data")
        seconds: list[float] = []
        while len(seconds) < MOST_STEPS and sum(seconds) < MOST_SECONDS:
            some = batches.take(self.recipe.training.accumulate)
            begin = time.perf_counter()
            self._step(some)
            seconds.append(max(self.processes.all(time.perf_counter() - begin)))
        return seconds

    def _step(self, batches: Sequence[Batch]) -> None:
        """One update, and the end of it."""
        training = self.recipe.training
        rate = learning_rate(1, self.recipe.model.d_model, training.warmup_steps)
        some = [batch.to(self.device) for batch in batches]
        update(self._steps, self.optimizer, some, rate, self.processes)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
