"""Going on from a finished model, on other data: its weights are the first checkpoint of a run.

RUN/from.json names the model from before anything else is done, so that whoever goes on with the
run, however it was stopped, begins with those weights too.
"""

import json
from pathlib import Path

import torch

from regard.data.prefetch import batches_of
from regard.errors import ModelError, RegardError
from regard.files.regular import checksum
from regard.files.whole import write_file
from regard.optimizer import FlatAdam
from regard.recipe import Recipe
from regard.run import checkpoints
from regard.run.beginning import differences
from regard.run.directory import Run
from regard.run.model_directory import Model, open_model
from regard.run.state import State

FREE = ("model.dropout", "model.attention_dropout", "model.relu_dropout")
"""What of a model's recipe may be another, with the same weights."""


def refuse_other_shape(directory: Path, model: Model, recipe: Recipe) -> None:
    """Raise ModelError where a run of this recipe cannot begin with the model's weights."""
    free = FREE if model.recipe.model.positions == "learned" else (*FREE, "model.max_positions")
    changes = [
        change
        for change in differences(model.recipe, recipe)
        if change.startswith("model.") and not change.startswith(free)
    ]
    if changes:
        raise ModelError(
            f"{directory}: is a model of another shape ({'; '.join(changes)}): leave out --recipe "
            "to have its own"
        )


def keep_origin(directory: Path, run: Path) -> None:
    """Write down that a run begins with a model; raises RegardError where it began otherwise."""
    if directory.resolve() == run.resolve():
        raise RegardError(f"{run}: is the model to begin with: choose another --out")
    path, manifest = run / "from.json", directory / "manifest.json"
    if path.exists():
        if _origin(run)["sha256"] != checksum(manifest):
            raise RegardError(f"{run}: was begun with another --from: choose another --out")
        return
    if (run / "recipe.toml").exists() or checkpoints.paths(run / "checkpoints"):
        raise RegardError(f"{run}: was begun without --from: choose another --out")
    run.mkdir(parents=True, exist_ok=True)
    origin = {"model": str(directory.resolve()), "sha256": checksum(manifest)}
    write_file(path, json.dumps(origin, indent=1) + "\n")


def begin_from_model(run: Run) -> None:
    """Save the model's weights as step 0, its moments zero, of a run that is to begin with them.

    Raises ModelError where the model has another tokenizer or shape, or is no longer there.
    """
    path, folder = run.directory / "from.json", run.directory / "checkpoints"
    ended = (run.directory / "model.safetensors").exists()
    if not path.exists() or ended or checkpoints.paths(folder):
        return
    origin = _origin(run.directory)
    directory = Path(origin["model"])
    model = open_model(directory)
    if checksum(directory / "manifest.json") != origin["sha256"]:
        raise ModelError(f"{directory}: is no longer the model that {run.directory} begins with")
    refuse_other_shape(directory, model, run.recipe)
    if model.tokenizer.fingerprint != run.tokenizer.fingerprint:
        raise ModelError(
            f"{directory}: has another tokenizer than {run.data}: prepare that with --tokenizer "
            f"{directory / 'tokenizer.json'}"
        )
    optimizer = FlatAdam(model.transformer, run.recipe.training, torch.float32)
    about = {
        "step": 0,
        "extra": True,
        "state": vars(State()),
        "batches": batches_of(run.pairs, run.recipe).state(),
        **run.fingerprints,
    }
    checkpoints.save(folder, optimizer.named_weights(), optimizer.state(), about, keep=1)
    run.journal.write("begin", model=str(directory), step=0)
    run.warn(f"{run.directory}: begins with the weights of {directory}")


def _origin(run: Path) -> dict[str, str]:
    path = run / "from.json"
    try:
        origin = json.loads(path.read_bytes())
        return {key: str(origin[key]) for key in ("model", "sha256")}
    except (OSError, ValueError, TypeError, KeyError):
        raise ModelError(f"{path}: is damaged: choose another --out") from None
