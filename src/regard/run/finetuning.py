"""Fine-tuning: a run that begins with the weights of a finished model, on other data.

The weights become the run's first checkpoint, of step 0. RUN/from.json, which names the model, is
written first, so that the run begins with these weights even if it is interrupted at once.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from regard.errors import InUse, ModelError, RegardError
from regard.files.manifest import MANIFEST
from regard.files.regular import checksum
from regard.files.whole import refusing_write_errors, write_file
from regard.optimizer import FlatAdam
from regard.recipe import Recipe, assigned_field, changes
from regard.run import checkpoints
from regard.run.checkpoints import Keep
from regard.run.directory import ORIGIN
from regard.run.model_directory import Model, open_model
from regard.run.run import Run
from regard.run.state import TrainingState

FREE_FIELDS = (
    "model.dropout", "model.attention_dropout", "model.relu_dropout", "model.word_dropout"
)  # fmt: skip
"""Recipe fields in which a run may differ from the model that it begins with: no weight's shape
depends on them."""


def refuse_other_shape(directory: Path, model: Model, recipe: Recipe) -> None:
    """Raise ModelError if the recipe's section [model] differs from the model's.

    FREE_FIELDS may differ, and `model.max_positions` if the model has no learned positions.
    """
    learned_positions = model.recipe.model.positions == "learned"
    free = FREE_FIELDS if learned_positions else (*FREE_FIELDS, "model.max_positions")
    changed = [
        str(change)
        for change in changes(model.recipe, recipe)
        if change.field.startswith("model.") and change.field not in free
    ]
    if changed:
        raise ModelError(
            f"{directory}: is a model of another shape ({'; '.join(changed)}): leave out --recipe "
            "and --set model.* to keep the model's own"
        )


def refuse_other_model(
    directory: Path, model: Model, recipe: Recipe, assignments: Sequence[str]
) -> None:
    """Raise RegardError if --set changes the tokenizer, or if the model does not fit the recipe.

    `assignments` are the values of --set.
    """
    sets_tokenizer = any(assigned_field(one).startswith("tokenizer.") for one in assignments)
    if sets_tokenizer and recipe.tokenizer != model.recipe.tokenizer:
        raise RegardError(f"{directory}: has its own tokenizer: leave out --set tokenizer.*")
    refuse_other_shape(directory, model, recipe)


def open_origin(directory: Path, run: Path) -> Model:
    """Open the model in `directory`; the run in `run` begins with the weights of this model.

    Raises RegardError if the model is missing or damaged, or if `directory` and `run` are the same
    directory.
    """
    if os.path.realpath(directory) == os.path.realpath(run):
        raise RegardError(f"{run}: is the model that --from names: choose another --out")
    if not directory.exists() and checkpoints.paths(run / "checkpoints"):
        raise RegardError(f"{directory}: is gone, but {run} has its weights: leave out --from")
    return open_model(directory)


def refuse_other_origin(directory: Path, run: Path) -> None:
    """Raise RegardError if the run was begun without --from or with another model.

    A model in `directory` that has changed since the run began counts as another model. A damaged
    RUN/from.json raises RegardError, too.
    """
    if (run / ORIGIN).exists():
        if _origin(run)["sha256"] != checksum(directory / MANIFEST):
            raise RegardError(
                f"{run}: was begun with another --from, or that model has changed since: leave "
                "out --from to continue, or choose another --out"
            )
    elif (run / "recipe.toml").exists() or checkpoints.paths(run / "checkpoints"):
        raise RegardError(f"{run}: was begun without --from: choose another --out")


def keep_origin(directory: Path, run: Path) -> None:
    """Write RUN/from.json, which names the model in `directory`, unless this file exists.

    Raises RegardError in the same cases as `refuse_other_origin`, and if the file cannot be
    written.
    """
    refuse_other_origin(directory, run)
    if not (run / ORIGIN).exists():
        with refusing_write_errors(run):
            run.mkdir(parents=True, exist_ok=True)
        origin = {"model": str(directory.resolve()), "sha256": checksum(directory / MANIFEST)}
        write_file(run / ORIGIN, json.dumps(origin, indent=1) + "\n")


@contextmanager
def origin_forgotten_after_errors(run: Path) -> Iterator[None]:
    """Remove RUN/from.json if the `with` block fails before the run has a checkpoint.

    If the file stayed, a later run without --from would begin with the model that the file names.
    RUN and its parents are removed, too, if they are new and empty. The file stays if it was there
    before, if there is a checkpoint, if another process works in RUN, or after a signal or a kill.
    """
    path = (run / ORIGIN).absolute()
    new = [place for place in (path, *path.parents) if not place.exists()]
    try:
        yield
    except InUse:  # the other process needs the file
        raise
    except Exception:
        if new and not checkpoints.paths(run / "checkpoints"):
            # A folder in `new` may still be missing, or another program may have put files there.
            with suppress(OSError):
                path.unlink(missing_ok=True)
                for folder in new[1:]:
                    folder.rmdir()
        raise


def begin_from_model(run: Run) -> None:
    """Save the checkpoint of step 0: weights of the model named in RUN/from.json, and moments of 0.

    Does nothing if there is no from.json, or if the run has a checkpoint or a finished model.
    Raises ModelError if from.json is damaged, or if the model is missing or damaged, has changed
    since from.json was written, or has another tokenizer or shape than the run.
    """
    setup, place = run.setup, run.directory
    ended = (place.path / "model.safetensors").exists()
    named = (place.path / ORIGIN).exists()
    if not named or ended or checkpoints.paths(place.checkpoints):
        return
    origin = _origin(place.path)
    directory = Path(origin["model"])
    model = open_model(directory)
    if checksum(directory / MANIFEST) != origin["sha256"]:
        raise ModelError(f"{directory}: is no longer the model that {place.path} begins with")
    refuse_other_shape(directory, model, setup.recipe)
    if model.tokenizer.fingerprint != setup.tokenizer.fingerprint:
        raise ModelError(
            f"{directory}: has another tokenizer than {setup.data}: prepare that data with "
            f"--tokenizer {directory / 'tokenizer.json'}"
        )
    optimizer = FlatAdam(model.network, setup.recipe.training, torch.float32)
    about = {
        "step": 0,
        "extra": True,
        "state": TrainingState().saved(),
        "batches": setup.batches(1).state(),
        **setup.fingerprints,
    }
    weights, moments = optimizer.named_weights(), optimizer.state()
    checkpoints.save(place.checkpoints, weights, moments, about, Keep(1))
    run.journal.write("begin", model=str(directory), step=0)
    run.warn(f"{place.path}: begins with the weights of {directory}")


def _origin(run: Path) -> dict[str, str]:
    path = run / ORIGIN
    try:
        origin = json.loads(path.read_bytes())
        return {key: str(origin[key]) for key in ("model", "sha256")}
    except (OSError, ValueError, TypeError, KeyError):
        raise ModelError(f"{path}: is damaged: choose another --out") from None
