"""A run directory: what one training run owns on disk, and when it saves, validates and reports.

RUN/recipe.toml  journal.jsonl  checkpoints/step-N/  and, at the end, the model (model_directory)
"""

import fcntl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.pairs import Pairs
from regard.errors import ModelError, RecipeError, RegardError, TrainingError
from regard.optimizer import FlatAdam
from regard.recipe import Recipe
from regard.run import checkpoints
from regard.run.averaging import average
from regard.run.devices import choose_device, choose_dtype, keep_freed_memory
from regard.run.files import refusing_write_errors, write_file
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


class Training(NamedTuple):
    """What the loop works on."""

    model: Transformer
    optimizer: FlatAdam
    batches: Batches
    state: State


@dataclass
class Run:
    """The directory of a run, and the clock of its saves and reports.

    Opening it takes a lock, so that two processes never train in one directory. Raises RecipeError
    where the directory was begun with another recipe, unless `accept_changes`.
    """

    directory: Path
    recipe: Recipe
    data: Path
    listeners: tuple[Listener, ...] = ()
    interrupt: Interrupt = field(default_factory=Interrupt)
    warn: Callable[[str], None] = lambda message: None
    accept_changes: bool = False

    def __post_init__(self) -> None:
        """Lock the directory and settle the recipe, the data and the device."""
        with refusing_write_errors(self.directory):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = (self.directory / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TrainingError(f"{self.directory}: another process is training here") from None
        self._settle_recipe()
        self.tokenizer = Tokenizer.load(self.data / "tokenizer.json")
        self.tokenizer.save(self.directory / "tokenizer.json")
        self.pairs = Pairs.open(self.data, "train")
        self.device = choose_device()
        self.dtype = choose_dtype(self.recipe.training.precision, self.device)
        self.journal = Journal(self.directory / "journal.jsonl", self.listeners)
        self._checkpoints = self.directory / "checkpoints"
        self._saved_at = self._logged_at = time.monotonic()
        self._logged_tokens = 0

    def _settle_recipe(self) -> None:
        path = self.directory / "recipe.toml"
        if path.exists() and not self.accept_changes:
            changes = differences(Recipe.read(path), self.recipe)
            if changes:
                raise RecipeError(
                    f"{self.directory} was begun with another recipe ({'; '.join(changes)}): "
                    "choose another --out, or go on knowingly with --accept-changes"
                )
        write_file(path, self.recipe.to_toml())

    def resume_or_start(self, recipe: Recipe) -> Training:
        """The newest whole checkpoint, or a fresh model initialised from the seed."""
        torch.manual_seed(recipe.training.seed)
        keep_freed_memory()
        model = Transformer(recipe.model, self.tokenizer.size).to(self.device).train()
        optimizer = FlatAdam(model, recipe.training, self.dtype)
        batches = Batches(self.pairs, recipe.data, recipe.training.seed, layout=self._layout())
        state = State()
        found = checkpoints.newest(self._checkpoints, 1, self.warn)
        if found:
            state = self._resume(found[0], optimizer, batches)
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
        self._saved_at = self._logged_at = time.monotonic()
        self._logged_tokens = state.source_tokens + state.target_tokens
        return Training(model, optimizer, batches, state)

    def _layout(self) -> Literal["grouped", "packed"]:
        wanted = self.recipe.data.layout
        if wanted == "auto":
            return "grouped" if self.device.type == "cpu" else "packed"
        return wanted

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
        except (KeyError, RuntimeError) as error:
            raise ModelError(f"{checkpoint.path}: does not fit this recipe: {error}") from None
        batches.restore(about["batches"])
        return State(**about["state"])

    def _fingerprints(self) -> dict[str, str]:
        return {"data": self.pairs.fingerprint, "tokenizer": self.tokenizer.fingerprint}

    def tick(self, state: State, source_tokens: int, target_tokens: int) -> None:
        """Count what a step learned from, and its time."""
        state.source_tokens += source_tokens
        state.target_tokens += target_tokens

    def due(self, what: Literal["log", "validate", "save"], state: State) -> bool:
        """Whether to log, validate or save after this step; the last step does all three."""
        training = self.recipe.training
        if state.step == training.steps:
            return True
        if what == "log":
            return state.step % training.log_every == 0 or state.step == 1
        if what == "validate":
            return state.step % training.validate_every == 0
        minutes = (time.monotonic() - self._saved_at) / 60
        return (
            self.interrupt.signum is not None
            or (training.save_every > 0 and state.step % training.save_every == 0)
            or (0 < training.save_minutes <= minutes)
        )

    def log(self, training: Training, rate: float, loss: float, plain: float) -> None:
        """Journal a step; raises TrainingError where the loss is no longer a number."""
        state, now = training.state, time.monotonic()
        tokens = state.source_tokens + state.target_tokens
        state.seconds += now - self._logged_at
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

    def save(self, training: Training) -> None:
        """Write a checkpoint, and remove those that are no longer kept."""
        state = training.state
        about: dict[str, Any] = {
            "step": state.step,
            "state": vars(state),
            "batches": training.batches.state(),
            **self._fingerprints(),
        }
        checkpoints.save(self._checkpoints, training.optimizer, about, self.recipe.training.keep)
        self.journal.write("save", step=state.step)
        self._saved_at = time.monotonic()

    def leave_if_asked(self, state: State) -> None:
        """Raise Interrupted if a signal has come; the caller has saved."""
        if self.interrupt.signum is not None:
            raise Interrupted(self.interrupt.signum, state.step)

    def finish(self, state: State) -> dict[str, Tensor]:
        """Average the last checkpoints into the final model, and return its weights."""
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
        raise RegardError(f"{directory}: is a file; --out names a run directory")
    path = directory / "recipe.toml"
    return Recipe.read(path) if path.exists() else None


def average_run(directory: Path, out: Path, last: int, warn: Callable[[str], None]) -> list[int]:
    """Make a model directory of a run's last checkpoints; returns their steps.

    Raises ModelError where the run has none, RegardError where `out` is in the way.
    """
    recipe = begun(directory)
    if recipe is None:
        raise ModelError(f"{directory}: not a run directory: it has no recipe.toml")
    if out.exists():
        raise RegardError(f"{out}: exists already; name a new directory")
    found = checkpoints.newest(directory / "checkpoints", last, warn)
    if not found:
        raise ModelError(f"{directory}: no whole checkpoint to average")
    if len(found) < last:
        raise ModelError(
            f"{directory}: has {len(found)} whole checkpoints, not {last}: give --last {len(found)}"
        )
    steps = sorted(checkpoint.step for checkpoint in found)
    about = {key: found[0].manifest[key] for key in ("data", "tokenizer")}
    tokenizer = Tokenizer.load(directory / "tokenizer.json")
    write_model(
        out, recipe, tokenizer, average(found), about | {"step": steps[-1], "averaged": steps}
    )
    return steps
