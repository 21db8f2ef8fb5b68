"""Test whether a run that is stopped and resumed ends with the same numbers as without a stop.

The numbers may differ for reasons outside the code: a library's kernels, threads, or a GPU's atomic
additions.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from regard.data.training_data import training_pairs
from regard.errors import ModelError, TrainingError
from regard.files.whole import refusing_write_errors
from regard.recipe import Recipe
from regard.run import checkpoints
from regard.run.beginning import recipe_changes
from regard.run.checkpoints import Checkpoint
from regard.run.cooldown import Cooldown
from regard.run.run import Run
from regard.run.state import TrainingState
from regard.training import train

COMPARED = ("weights.safetensors", "optimizer.safetensors")
"""The files of a checkpoint that hold its weights, moments and random states."""


def verify_resume(
    directory: Path, recipe: Recipe, data: Path, steps: int, warn: Callable[[str], None]
) -> str:
    """Repeat some steps of a run, stop in between, and test that the stop changes nothing.

    The steps are repeated in a temporary directory, from the second newest checkpoint. At the end,
    weights, moments and random states must equal those of the newest checkpoint.

    For this test, the run must have two checkpoints that are at most `steps` steps apart, and
    `recipe` and `data` must be those of the run. A cooldown that was planned for other settings
    must be over at the older checkpoint. Both checkpoints must have been made by one process,
    because one process cannot repeat the sums of several processes.
    If one of these conditions is not met, the test begins at the second newest checkpoint, or at
    the only one. From there, `steps` steps (at least two) are made twice, once without a stop and
    once with a stop. Both repetitions must end with equal numbers.

    Returns a sentence that says what was compared. `warn` is called for damaged checkpoints. Raises
    TrainingError if the numbers differ. Raises ModelError if there is no checkpoint, if all are
    damaged, if one cannot be read now, or if one is of another version of regard. Also raises the
    errors of `begun`, `training_pairs`, `Run` and `train`, and RegardError if `directory` cannot be
    written.
    """
    found = checkpoints.newest(directory / "checkpoints", 2, warn)
    if not found:
        raise _without_checkpoint(directory)
    newest, base = found[0], found[-1]
    same_data = base.manifest["data"] == training_pairs(data, recipe).fingerprint
    cooldown = Cooldown(recipe.training)
    states = list(map(_state, (base, newest)))
    unchanged = not recipe_changes(directory, recipe) and cooldown.explains(*states)
    own = same_data and unchanged
    alone = newest.processes == base.processes == 1
    with refusing_write_errors(directory):
        scratch = Path(tempfile.mkdtemp(suffix=".tmp", prefix=".verify.", dir=directory))
    try:
        if base.step < newest.step <= base.step + steps and alone and own:
            what, expected = f"the checkpoint of step {newest.step}", newest
            span = cooldown.span(states[1])
        else:
            last = base.step + max(2, steps)  # a single step has no place to stop at
            what = f"a replay to step {last} without a stop"
            expected = _replayed(base, scratch / "whole", recipe, data, last)
            span = None
        stop = (base.step + expected.step) // 2  # if only one step is repeated: `base.step`
        stops = sorted({stop, expected.step} - {base.step})
        replayed = _replayed(base, scratch / "stopped", recipe, data, *stops, cooldown=span)
        sums = [[c.manifest["files"][name] for name in COMPARED] for c in (replayed, expected)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if sums[0] != sums[1]:
        raise TrainingError(
            f"{directory}: stopped and resumed between steps {base.step} and {expected.step}, the "
            f"run ends in other numbers than {what}: set training.precision=fp32 and --threads 1, "
            "and verify again to find what on this machine is not exact"
        )
    return (
        f"steps {base.step} to {expected.step}, stopped and resumed at {stop}, end bit for bit "
        f"as {what}: weights {sums[0][0][:16]}, moments {sums[0][1][:16]}"
    )


def refuse_without_checkpoint(directory: Path) -> None:
    """Raise ModelError if a run has no checkpoint; checkpoints are not opened."""
    if not checkpoints.paths(directory / "checkpoints"):
        raise _without_checkpoint(directory)


def _state(checkpoint: Checkpoint) -> TrainingState:
    try:
        return TrainingState.restored(checkpoint.manifest["state"])
    except (KeyError, TypeError) as error:
        raise ModelError(f"{checkpoint.path}: is not of this version of regard ({error})") from None


def _without_checkpoint(directory: Path) -> ModelError:
    return ModelError(
        f"{directory}: has no checkpoint to verify: name a run that has checkpoints, or train first"
    )


def _replayed(
    base: Checkpoint,
    folder: Path,
    recipe: Recipe,
    data: Path,
    *stops: int,
    cooldown: tuple[int, int] | None = None,
) -> Checkpoint:
    """Train from `base` to each step of `stops` in turn; return the last checkpoint.

    `cooldown` has the step before the cooldown of the replay, and the last step of the cooldown;
    None means that there is no cooldown.
    """
    with refusing_write_errors(folder):
        shutil.copytree(base.path, folder / "checkpoints" / base.path.name)
    for stop in stops:
        until = recipe.but(
            steps=stop,
            patience=0,  # the run may already have used up its patience or its minutes
            minutes=0.0,
            cooldown=0.0,
            validate_every=2**31 - 1,
            save_every=0,
            save_minutes=0.0,
            keep=1,
            average=1,
        )
        run = Run(folder, until, data, accept_changes=True, cooldown=cooldown)
        try:
            train(run)
        finally:
            run.close()
    return checkpoints.newest(folder / "checkpoints", 1, lambda _: None)[0]
