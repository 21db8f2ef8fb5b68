"""A run directory: what one training run owns on disk, and when it saves, validates and reports.

RUN/recipe.toml  journal.jsonl  checkpoints/step-N/  and, at the end, the model (model_directory)
"""

import fcntl
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from regard.arithmetic.choose import choose_dtype
from regard.data.batches import Batches, BatchShare
from regard.data.layouts import most_rows
from regard.data.pairs import Pairs
from regard.data.prefetch import Prefetched, batches_of, training_batches
from regard.errors import ModelError, TrainingError
from regard.files.whole import refusing_write_errors, remove_leftovers
from regard.machine.devices import (
    choose_device,
    free_memory,
    in_words,
    refuse_too_large,
)
from regard.machine.interrupt import SIGNALS, Interrupt, Interrupted
from regard.machine.processes import ALONE, Processes
from regard.paper import parameters
from regard.recipe import Recipe
from regard.run import checkpoints
from regard.run.averaging import average
from regard.run.beginning import (
    changed_shape,
    keep_beginning,
    refuse_another_recipe,
    refuse_changed,
)
from regard.run.journal import Journal, Listener, NoJournal
from regard.run.model_directory import write_model
from regard.run.sharding import Optimizer, model_and_optimizer
from regard.run.state import Due, State, Training
from regard.text.tokenizer import Tokenizer


@dataclass
class Run:
    """The directory of a run, and the clock of its saves and reports.

    Opening it takes a lock, so that two processes never train in one directory. What cannot be
    trained is refused before anything is written. Raises RecipeError where the directory was begun
    with another recipe, unless `accept_changes`; DataError or ModelError for damaged data;
    TrainingError where another process has the lock, or the model or a pair of sentences is too
    large; RegardError where the directory cannot be written.
    """

    directory: Path
    recipe: Recipe
    data: Path
    listeners: tuple[Listener, ...] = ()
    interrupt: Interrupt = field(default_factory=Interrupt)
    warn: Callable[[str], None] = lambda message: None
    accept_changes: bool = False
    processes: Processes = ALONE
    """Of several that train together only the first writes."""
    micro_batches: int | None = None
    """Parts that a process cuts its share of a batch into; None leaves it as it was."""
    shard: bool = False
    """Divide weights and moments among the processes."""

    def __post_init__(self) -> None:
        """Check all that is given, then lock the directory."""
        if not self.accept_changes:
            refuse_another_recipe(self.directory, self.recipe)
        self.pairs = Pairs.open(self.data, "train")
        self.tokenizer = Tokenizer.load(self.data / "tokenizer.json")
        self.device = choose_device()
        self.dtype = choose_dtype(self.recipe.training.precision, self.device)
        batches_of(self.pairs, self.recipe)
        if self.shard and self.shares == 1:
            self.warn("--shard divides a model among torchrun's processes; the only one has it all")
        count = parameters(self.recipe.model, self.tokenizer.size)
        refuse_too_large(count, self.device, self.shares)
        self._checkpoints = self.directory / "checkpoints"
        self.journal: Journal = NoJournal()
        if self.processes.first:
            self._lock()
            remove_leftovers(self.directory)
            remove_leftovers(self._checkpoints)
            self.journal = Journal(self.directory / "journal.jsonl", self.listeners)
        self._saved_at = self._logged_at = self._ticked_at = time.monotonic()
        self._logged_tokens = 0

    @property
    def shares(self) -> int:
        """Processes that weights and moments are divided among; 1 where each has all."""
        return self.processes.count if self.shard else 1

    def _lock(self) -> None:
        with refusing_write_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        self.close = weakref.finalize(self, os.close, lock)  # the lock goes with the run
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"{self.directory}: another process is training here: wait for it, or choose "
                "another --out"
            ) from None
        except OSError as error:
            self.warn(
                f"{self.directory}: cannot be locked ({error.strerror}): see that nobody else "
                "trains here"
            )

    def resume_or_start(self) -> Training:
        """The newest whole checkpoint, or a fresh model initialised from the seed."""
        self.processes.refuse_differences(
            recipe=self.recipe,
            arithmetic=self.dtype,
            torch=torch.__version__,
            shard=self.shard,
            **self.fingerprints,
        )
        model, optimizer = model_and_optimizer(
            self.recipe, self.tokenizer.size, self.dtype, self.device, self.processes, self.shard
        )
        state, position, randoms = State(), None, checkpoints.random_states()
        if found := self._found(optimizer):
            state, position, randoms = found
        seed = self.recipe.training.seed, state.step
        checkpoints.set_random_states(randoms, self.processes.rank, seed)
        optimizer.give(self.processes.give)
        if self.micro_batches:
            state.cuts = self.micro_batches * self._share(1).parts
        batches = batches_of(self.pairs, self.recipe, self._share(state.cuts))
        if position:
            self._go_to(position, batches)
        if self.processes.first:
            keep_beginning(self.directory, self.recipe, self.data)
            self.journal.rewind(state.step)
        self.journal.write(
            "start",
            step=state.step,
            steps=self.recipe.training.steps,
            parameters=model.parameter_count,
            pairs=len(self.pairs),
            vocabulary=self.tokenizer.size,
            batches_per_epoch=batches.batches_per_epoch,
            device=str(self.device),
            dtype=in_words(self.dtype, self.recipe.training.precision),
            threads=torch.get_num_threads(),
            processes=self.processes.count,
            cuts=self._share(state.cuts).parts,
            shares=self.shares,
        )
        self._saved_at = self._logged_at = self._ticked_at = time.monotonic()
        self._logged_tokens = state.source_tokens + state.target_tokens
        return Training(model, optimizer, self._ahead(batches), state)

    def _newest(self, count: int) -> list[checkpoints.Checkpoint]:
        """Whole ones, newest first; in the first process, which alone looks."""
        if not self.processes.first:
            return []
        return checkpoints.newest(self._checkpoints, count, self.warn)

    def _share(self, cuts: int) -> BatchShare:
        """What this process learns from, where each batch is cut into so many parts at least."""
        rank, count = self.processes.rank, self.processes.count
        return BatchShare.even(rank, count, self.recipe.training.accumulate, cuts)

    def _ahead(self, batches: Batches) -> Batches | Prefetched:
        """On a GPU, packed by another process: beside a CPU's steps, packing is nothing."""
        if self.device.type == "cpu":
            return batches
        return Prefetched(batches, partial(training_batches, self.data, self.recipe, batches.share))

    def cut_smaller(self, training: Training, position: dict[str, int]) -> Batches | Prefetched:
        """From this position, batches cut into twice as many parts, for those were too large.

        An update is the same in however many parts. Raises TrainingError where one cannot be cut.
        """
        state, before = training.state, self._share(training.state.cuts)
        state.cuts = 2 * before.parts
        if before.parts >= most_rows(self.recipe.data):
            raise TrainingError(
                f"step {state.step + 1}: not even one row of a batch fits the memory: lower "
                "data.row_length, data.max_length or the size of the model"
            )
        self.warn(
            f"step {state.step + 1}: out of memory: each batch is now learned from in {state.cuts} "
            f"parts, not {before.parts}; the update stays the same"
        )
        self.journal.write("out of memory", step=state.step, cuts=state.cuts)
        if isinstance(training.batches, Prefetched):
            training.batches.close()
        free_memory(self.device)
        batches = batches_of(self.pairs, self.recipe, self._share(state.cuts))
        batches.restore(position)
        return self._ahead(batches)

    def _found(
        self, optimizer: Optimizer
    ) -> tuple[State, dict[str, int], checkpoints.RandomStates] | None:
        """What the first process finds in the newest checkpoint; it gets weights and moments."""
        newest = self._newest(1)
        if self.processes.first and not newest and (self.directory / "model.safetensors").exists():
            raise TrainingError(
                f"{self.directory}: holds a finished model and no checkpoints: choose another "
                "--out, or remove its model.safetensors to train again"
            )
        return self.processes.all(self._restored(newest[0], optimizer) if newest else None)[0]

    def _restored(
        self, checkpoint: checkpoints.Checkpoint, optimizer: Optimizer
    ) -> tuple[State, dict[str, int], checkpoints.RandomStates]:
        about = checkpoint.manifest
        changed = [what for what, mine in self.fingerprints.items() if about[what] != mine]
        refuse_changed(changed, checkpoint.path, knowingly=self.accept_changes)
        if changed:
            self.warn(f"{checkpoint.path}: the data changed since this run began")
        try:
            randoms = checkpoints.restore(checkpoint, optimizer)
            return State(**about["state"]), about["batches"], randoms
        except (KeyError, TypeError, RuntimeError) as error:
            why = changed_shape(self.directory, self.recipe) or str(error)
            raise ModelError(
                f"{checkpoint.path}: does not fit this recipe ({why}): choose another --out"
            ) from None

    def _go_to(self, position: dict[str, int], batches: Batches) -> None:
        try:
            batches.restore(position)
        except (KeyError, TypeError) as error:
            raise ModelError(
                f"{self._checkpoints}: the newest does not tell where in the data it was "
                f"({error!r}): choose another --out"
            ) from None
        except TrainingError as error:  # the position was counted in other batches
            if not self.accept_changes:
                raise
            self.warn(f"reading the data from its beginning: {error}")

    @property
    def fingerprints(self) -> dict[str, str]:
        """What the run stays with, by checksum."""
        return {"data": self.pairs.fingerprint, "tokenizer": self.tokenizer.fingerprint}

    def tick(self, state: State, source_tokens: int, target_tokens: int) -> None:
        """Count what a step learned from, and the time since the last one."""
        state.source_tokens += source_tokens
        state.target_tokens += target_tokens
        self._count_time(state)

    def _count_time(self, state: State) -> None:
        now = time.monotonic()
        state.seconds += now - self._ticked_at
        self._ticked_at = now

    def due(self, state: State) -> Due:
        """What to do after this step; the last logs, validates and saves."""
        training, step = self.recipe.training, state.step
        minutes = (time.monotonic() - self._saved_at) / 60
        by_clock = self.processes.first and 0 < training.save_minutes <= minutes
        mine = [self.interrupt.signum == signum for signum in SIGNALS]
        save_now, *signals = self.processes.sum(by_clock, *mine)
        if any(signals):
            self.interrupt.signum = SIGNALS[signals.index(max(signals))]
        last = step == training.steps
        return Due(
            log=last or step == 1 or step % training.log_every == 0,
            validate=last or step % training.validate_every == 0,
            save=last
            or (training.save_every > 0 and step % training.save_every == 0)
            or save_now > 0,
            leave=any(signals),
        )

    def log(self, training: Training, rate: float, loss: float, plain: float) -> None:
        """Journal a step."""
        state, now = training.state, time.monotonic()
        tokens = state.source_tokens + state.target_tokens
        self.journal.write(
            "step",
            step=state.step,
            epoch=round(training.batches.epoch, 3),
            loss=loss,
            plain_loss=plain,
            rate=rate,
            source_tokens=state.source_tokens,
            target_tokens=state.target_tokens,
            tokens_per_second=round(
                (tokens - self._logged_tokens) / max(now - self._logged_at, 1e-9), 1
            ),
            seconds=round(state.seconds, 3),
        )
        self._logged_at, self._logged_tokens = now, tokens

    def save(self, training: Training, *, extra: bool = False) -> None:
        """Write a checkpoint, and remove those that are no longer kept.

        An `extra` one, that was not due, goes with the next: the final average is of those due.
        """
        state = training.state
        self._count_time(state)
        about: dict[str, Any] = {
            "step": state.step,
            "extra": extra,
            "state": vars(state),
            "batches": training.batches.state(),
            **self.fingerprints,
        }
        randoms = self.processes.all(checkpoints.random_states(self.processes.rank))
        weights, moments = training.optimizer.named_weights(), training.optimizer.state()
        if self.processes.first:
            self.journal.sync()
            keep = self.recipe.training.keep
            checkpoints.save(self._checkpoints, weights, moments, about, keep, randoms)
        self.journal.write("save", step=state.step)
        self._saved_at = time.monotonic()

    def leave(self, state: State) -> NoReturn:
        """Raise Interrupted, for the signal that has come; the caller has saved."""
        assert self.interrupt.signum is not None
        raise Interrupted(self.interrupt.signum, state.step)

    def finish(self, state: State) -> dict[str, Tensor]:
        """Average the last checkpoints into the final model, and return its weights.

        The first process does; the others have none.
        """
        if not self.processes.first:
            return {}
        self._count_time(state)
        last, wanted = self._newest(self.recipe.training.average), self.recipe.training.average
        if len(last) < wanted:
            self.warn(
                f"{self.directory}: the model is the average of {len(last)}, not {wanted}, "
                "checkpoints: no more were saved (training.save_every, training.save_minutes)"
            )
        weights = average(last)
        steps = sorted(checkpoint.step for checkpoint in last)
        about = {"step": state.step, "averaged": steps, "seconds": round(state.seconds, 1)}
        write_model(self.directory, self.recipe, self.tokenizer, weights, about | self.fingerprints)
        self.journal.write(
            "finish", step=state.step, averaged=steps, seconds=round(state.seconds, 1)
        )
        return weights
