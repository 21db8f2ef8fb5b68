"""Going on from a finished model, on other data: its weights are the first checkpoint of a run."""

from pathlib import Path

import torch

from regard.data.prefetch import batches_of
from regard.errors import ModelError
from regard.optimizer import FlatAdam
from regard.run import checkpoints
from regard.run.beginning import differences
from regard.run.directory import Run
from regard.run.model_directory import open_model
from regard.run.state import State

FREE = ("model.dropout", "model.attention_dropout", "model.relu_dropout")
"""What of a model's recipe may be another, with the same weights."""


def begin_with(directory: Path, run: Run) -> None:
    """Save a model's weights as step 0 of a run that has no checkpoint; its moments are zero.

    Raises ModelError where model and run differ in shape or tokenizer, or the model is damaged.
    """
    folder = run.directory / "checkpoints"
    if checkpoints.paths(folder):
        return
    model = open_model(directory)
    if model.tokenizer.fingerprint != run.tokenizer.fingerprint:
        raise ModelError(
            f"{directory}: has another tokenizer than {run.data}: prepare that with --tokenizer "
            f"{directory / 'tokenizer.json'}"
        )
    changes = [
        change
        for change in differences(model.recipe, run.recipe)
        if change.startswith("model.") and not change.startswith(FREE)
    ]
    if changes:
        raise ModelError(
            f"{directory}: is a model of another shape ({'; '.join(changes)}): leave out --recipe "
            "to have its own"
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
