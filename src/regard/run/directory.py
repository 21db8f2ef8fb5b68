"""A run directory: the files of one run, and the lock that keeps other processes out.

RUN/recipe.toml, tokenizer.json        what the run was begun with (`beginning`)
RUN/from.json                          the model that the run begins with, if any (`finetuning`)
RUN/journal.jsonl                      what has happened (`journal`)
RUN/checkpoints/step-N/                states that the run can continue from (`checkpoints`)
RUN/model.safetensors, manifest.json   the model, at the end (`model_directory`)
RUN/result.json                        the last step, averaged steps, time, cost, last validation

A name in parentheses is the module of `regard.run` that writes the file.
"""

import fcntl
import json
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.data.characters import SOURCE_CHARACTERS
from regard.errors import InUse, ModelError, TrainingError
from regard.files.manifest import unseal
from regard.files.tensors import read_tensors
from regard.files.whole import refusing_write_errors, remove_leftovers, write_file
from regard.recipe import TrainingRecipe
from regard.run import checkpoints
from regard.run.averaging import average_weights
from regard.run.beginning import keep_beginning
from regard.run.checkpoints import Checkpoint, Keep, RandomStates
from regard.run.journal import Journal, NoJournal, RecordListener, last_validation
from regard.run.model_directory import write_model
from regard.run.setup import Setup
from regard.run.state import TrainingState

ORIGIN = "from.json"
"""The file of a run that names the model whose weights the run began with (`run.finetuning`)."""


class RunDirectory:
    """The files of a run at `path`.

    `writes` is True in the first process of the run; the directory is then locked until `close`. In
    the other processes, methods find no checkpoints and write nothing. Raises InUse if another
    process has the lock, RegardError if the directory cannot be written. If the file system has no
    locks, `warn` is called, and the directory is not locked.
    """

    def __init__(
        self,
        path: Path,
        listeners: tuple[RecordListener, ...],
        warn: Callable[[str], None],
        *,
        writes: bool,
    ):
        self.path, self.checkpoints = path, path / "checkpoints"
        self._warn, self._writes = warn, writes
        self.journal: Journal = NoJournal()
        if writes:
            self._lock()
            remove_leftovers(self.path)
            remove_leftovers(self.checkpoints)
            self.journal = Journal(self.path / "journal.jsonl", listeners)

    def _lock(self) -> None:
        with refusing_write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        self._unlock = weakref.finalize(self, os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(
                f"{self.path}: another process is training here: wait for it, or choose another "
                "--out"
            ) from None
        except OSError as error:
            self._warn(
                f"{self.path}: cannot be locked ({error.strerror}): make sure that no other "
                "process trains here"
            )

    def close(self) -> None:
        """Unlock the directory; deleting this object unlocks it, too."""
        if self._writes:
            self._unlock()

    def newest(self, count: int) -> list[Checkpoint]:
        """The newest `count` undamaged checkpoints, newest first; see `checkpoints.newest`."""
        return checkpoints.newest(self.checkpoints, count, self._warn) if self._writes else []

    def refuse_finished(self) -> None:
        """Raise TrainingError if there is a finished model, which a new training would replace."""
        if self._writes and (self.path / "model.safetensors").exists():
            raise TrainingError(
                f"{self.path}: holds a finished model and no checkpoints: choose another --out, or "
                "remove its model.safetensors to train again"
            )

    def begin(self, setup: Setup, step: int) -> None:
        """Write the recipe and the tokenizer; remove the steps after `step` from the journal."""
        if self._writes:
            keep_beginning(self.path, setup.recipe, setup.data)
            self.journal.rewind(step)

    def save(
        self,
        weights: dict[str, Tensor],
        moments: dict[str, Tensor],
        about: dict[str, Any],
        recipe: TrainingRecipe,
        randoms: list[RandomStates],
    ) -> None:
        """Write a checkpoint by `checkpoints.save`; remove old ones that `recipe` does not keep."""
        if self._writes:
            self.journal.sync()
            best = about["state"]["best_step"] if recipe.best != "last" else 0
            keep = Keep(recipe.keep, recipe.average, best)
            checkpoints.save(self.checkpoints, weights, moments, about, keep, randoms)
        self.journal.write("save", step=about["step"])

    def facts(self, setup: Setup) -> dict[str, str]:
        """The entries about data and tokenizer in the manifests of checkpoints and final model.

        They are checksums and, for a translator with a tokenizer of regard, the characters of the
        sources. If the run began with the weights of another model, the characters are left out,
        because the other model has read other sources.
        """
        facts = dict(setup.fingerprints)
        if not (self.path / ORIGIN).exists() and (read := setup.source_characters) is not None:
            facts[SOURCE_CHARACTERS] = read
        return facts

    def finish(self, setup: Setup, state: TrainingState) -> dict[str, Tensor]:
        """Write the final model (the mean of checkpoints, §6.1) and result.json; return the mean.

        If training.best is "last", or if there is no best validation, the newest checkpoints are
        averaged; otherwise, those nearest to the best validation. If the directory already has the
        model of this step, and this model averages a checkpoint that would not be averaged now (for
        example because it is gone), the model keeps its weights. Processes that do not write return
        {}. Raises the errors of `to_average` and `average_weights`, and RegardError if a file
        cannot be written.
        """
        if not self._writes:
            return {}
        recipe = setup.recipe.training
        wanted, best = recipe.average, state.best_step if recipe.best != "last" else 0
        found = checkpoints.to_average(self.checkpoints, best, wanted, self._warn)
        steps = sorted(checkpoint.step for checkpoint in found)
        same = {"step": state.step, **setup.fingerprints, **({"best": best} if best else {})}
        if made := self._made_of_more(steps, same):
            weights, steps = read_tensors(self.path / "model.safetensors"), made
        else:
            if len(found) < wanted:
                self._warn(
                    f"{self.path}: the model is the average of {len(found)}, not {wanted}, "
                    "checkpoints: no more were saved (training.save_every, training.save_minutes)"
                )
            weights = average_weights(found)
        told = {"step": state.step, "averaged": steps, "seconds": round(state.seconds, 3)}
        told["cost"] = setup.cost(state).record()
        validation = last_validation(self.journal.path)
        figures = {k: v for k, v in validation.items() if k not in ("event", "samples")}
        last = {"last_validation": figures}
        about = told | same | last | self.facts(setup)
        write_model(self.path, setup.recipe, setup.tokenizer, weights, about)
        write_file(self.path / "result.json", json.dumps(told | last, indent=1) + "\n")
        self.journal.write("finish", **told)
        return weights

    def _made_of_more(self, steps: list[int], same: dict[str, Any]) -> list[int]:
        """The steps whose checkpoints the finished model averages, if some are not in `steps`.

        Returns [] if all are in `steps`, if there is no undamaged model, or if a value of the
        model's manifest differs from the value in `same`.
        """
        try:
            manifest = unseal(self.path)
        except ModelError:
            return []
        made: list[int] = manifest.get("averaged", [])
        if set(made) <= set(steps) or any(manifest.get(key) != its for key, its in same.items()):
            return []
        self._warn(f"{self.path}: some checkpoints that the model was made from are gone: it stays")
        return made
