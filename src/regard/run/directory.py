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
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.pairs import Pairs
from regard.data.prefetch import Prefetched, batches_of, training_batches
from regard.errors import ModelError, RecipeError, RegardError, TrainingError
from regard.optimizer import FlatAdam
from regard.paper import parameters
from regard.recipe import Recipe
from regard.run import checkpoints
from regard.run.averaging import average
from regard.run.devices import choose_device, choose_dtype, keep_freed_memory, refuse_too_large
from regard.run.files import refusing_write_errors, remove_leftovers, write_file
from regard.run.interrupt import Interrupt, Interrupted
from regard.run.journal import Journal, Listener
from regard.run.model_directory import write_model
from regard.text.tokenizer import Tokenizer
from regard.transformer import Transformer


@dataclass
class State:
    """Where training stands; what a checkpoint keeps beside tensors."""

    step: int = 0
    """Optimizer steps done."""
    source_tokens: int = 0
    target_tokens: int = 0
    """Tokens learned from so far, </s> included, padding not."""
    seconds: float = 0.0
    """Time spent training, validation and saving included, over all starts of the run."""


class Due(NamedTuple):
    """What is to be done after a step, decided once: what happens meanwhile is for the next."""

    log: bool
    validate: bool
    save: bool
    leave: bool
    """A signal has come: save though it may not be due, and raise Interrupted."""


class Training(NamedTuple):
    """What the loop works on."""

    model: Transformer
    optimizer: FlatAdam
    batches: Batches | Prefetched
    state: State


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

    def __post_init__(self) -> None:
        """Check all that is given, then lock the directory."""
        self._refuse_another_recipe()
        self.pairs = Pairs.open(self.data, "train")
        self.tokenizer = Tokenizer.load(self.data / "tokenizer.json")
        self.device = choose_device()
        self.dtype = choose_dtype(self.recipe.training.precision, self.device)
        batches_of(self.pairs, self.recipe)
        refuse_too_large(parameters(self.recipe.model, self.tokenizer.size), self.device)
        self._lock()
        self._checkpoints = self.directory / "checkpoints"
        remove_leftovers(self.directory)
        remove_leftovers(self._checkpoints)
        self.journal = Journal(self.directory / "journal.jsonl", self.listeners)
        self._saved_at = self._logged_at = self._ticked_at = time.monotonic()
        self._logged_tokens = 0

    def _refuse_another_recipe(self) -> None:
        earlier = begun(self.directory)
        if earlier and not self.accept_changes and (changes := differences(earlier, self.recipe)):
            raise RecipeError(
                f"{self.directory}: was begun with another recipe ({'; '.join(changes)}): "
                "choose another --out, or go on knowingly with --accept-changes"
            )

    def _lock(self) -> None:
        with refusing_write_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        self.close = weakref.finalize(self, os.close, lock)  # the lock goes with the run
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TrainingError(
                f"{self.directory}: another process is training here: wait for it, or choose "
                "another --out"
            ) from None

    def _keep_recipe_and_tokenizer(self) -> None:
        """Write what differs; a finished model of before is then no longer one."""
        wanted = {
            "recipe.toml": self.recipe.to_toml().encode(),
            "tokenizer.json": (self.data / "tokenizer.json").read_bytes(),
        }
        for name, content in wanted.items():
            path = self.directory / name
            if not path.exists() or path.read_bytes() != content:
                with refusing_write_errors(path):
                    (self.directory / "manifest.json").unlink(missing_ok=True)
                write_file(path, content)

    def resume_or_start(self, recipe: Recipe) -> Training:
        """The newest whole checkpoint, or a fresh model initialised from the seed."""
        torch.manual_seed(recipe.training.seed)
        keep_freed_memory()
        model = Transformer(recipe.model, self.tokenizer.size).to(self.device).train()
        optimizer = FlatAdam(model, recipe.training, self.dtype)
        batches = batches_of(self.pairs, self.recipe)
        state = State()
        found = checkpoints.newest(self._checkpoints, 1, self.warn)
        if found:
            state = self._resume(found[0], optimizer, batches)
        self._keep_recipe_and_tokenizer()
        self.journal.rewind(state.step)
        self.journal.write(
            "start",
            step=state.step,
            steps=recipe.training.steps,
            parameters=model.parameter_count,
            pairs=len(self.pairs),
            vocabulary=self.tokenizer.size,
            batches_per_epoch=batches.batches_per_epoch,
            device=str(self.device),
            dtype=str(self.dtype).removeprefix("torch."),
            threads=torch.get_num_threads(),
        )
        self._saved_at = self._logged_at = self._ticked_at = time.monotonic()
        self._logged_tokens = state.source_tokens + state.target_tokens
        return Training(model, optimizer, self._ahead(batches), state)

    def _ahead(self, batches: Batches) -> Batches | Prefetched:
        """On a GPU, packed by another process: beside a CPU's steps, packing is nothing."""
        if self.device.type == "cpu":
            return batches
        return Prefetched(batches, partial(training_batches, self.data, self.recipe))

    def _resume(
        self, checkpoint: checkpoints.Checkpoint, optimizer: FlatAdam, batches: Batches
    ) -> State:
        about = checkpoint.manifest
        for what, mine in self._fingerprints().items():
            if about[what] != mine and not self.accept_changes:
                raise ModelError(
                    f"{checkpoint.path}: the {what} changed since this run began: put it back, "
                    "choose another --out, or go on knowingly with --accept-changes"
                )
        try:
            checkpoints.restore(checkpoint, optimizer)
            state = State(**about["state"])
            batches.restore(about["batches"])
        except (KeyError, TypeError, RuntimeError) as error:
            raise ModelError(
                f"{checkpoint.path}: does not fit this recipe ({error}): choose another --out"
            ) from None
        except TrainingError as error:  # the position was counted in other batches
            if not self.accept_changes:
                raise
            self.warn(f"reading the data from its beginning: {error}")
        return state

    def _fingerprints(self) -> dict[str, str]:
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
        last = step == training.steps
        return Due(
            log=last or step == 1 or step % training.log_every == 0,
            validate=last or step % training.validate_every == 0,
            save=last
            or (training.save_every > 0 and step % training.save_every == 0)
            or (0 < training.save_minutes <= minutes),
            leave=self.interrupt.signum is not None,
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
            **self._fingerprints(),
        }
        self.journal.sync()
        checkpoints.save(self._checkpoints, training.optimizer, about, self.recipe.training.keep)
        self.journal.write("save", step=state.step)
        self._saved_at = time.monotonic()

    def leave(self, state: State) -> NoReturn:
        """Raise Interrupted, for the signal that has come; the caller has saved."""
        assert self.interrupt.signum is not None
        raise Interrupted(self.interrupt.signum, state.step)

    def finish(self, state: State) -> dict[str, Tensor]:
        """Average the last checkpoints into the final model, and return its weights."""
        self._count_time(state)
        last = checkpoints.newest(self._checkpoints, self.recipe.training.average, self.warn)
        weights = average(last)
        steps = sorted(checkpoint.step for checkpoint in last)
        about = {"step": state.step, "averaged": steps, "seconds": round(state.seconds, 1)}
        write_model(
            self.directory, self.recipe, self.tokenizer, weights, about | self._fingerprints()
        )
        self.journal.write(
            "finish", step=state.step, averaged=steps, seconds=round(state.seconds, 1)
        )
        return weights


def differences(before: Recipe, after: Recipe) -> list[str]:
    """`section.key: old -> new` for each field in which two recipes differ."""
    old, new = before.model_dump(), after.model_dump()
    return [
        f"{section}.{key}: {old[section][key]} -> {value}"
        for section, fields in new.items()
        for key, value in fields.items()
        if old[section][key] != value
    ]


def begun(directory: Path) -> Recipe | None:
    """The recipe that a run directory was begun with, or None for a new one."""
    if directory.exists() and not directory.is_dir():
        raise RegardError(f"{directory}: is a file: name a run directory")
    path = directory / "recipe.toml"
    return Recipe.read(path) if path.exists() else None


def average_run(directory: Path, out: Path, last: int, warn: Callable[[str], None]) -> list[int]:
    """Make a model directory of a run's last checkpoints; returns their steps.

    Raises ModelError where the run has none, RegardError where `out` is in the way.
    """
    recipe = begun(directory)
    if recipe is None:
        raise ModelError(
            f"{directory}: is not a run directory, it has no recipe.toml: name one that regard "
            "train made"
        )
    if out.exists():
        raise RegardError(f"{out}: exists already: name a new directory")
    found = checkpoints.newest(directory / "checkpoints", last, warn)
    if not found:
        raise ModelError(f"{directory}: has no checkpoint to average yet: train on")
    if len(found) < last:
        raise ModelError(
            f"{directory}: has {len(found)} whole checkpoints, not {last}: give --last {len(found)}"
        )
    steps = sorted(checkpoint.step for checkpoint in found)
    about = {key: found[0].manifest[key] for key in checkpoints.FINGERPRINTS}
    tokenizer = Tokenizer.load(directory / "tokenizer.json")
    write_model(
        out, recipe, tokenizer, average(found), about | {"step": steps[-1], "averaged": steps}
    )
    return steps
