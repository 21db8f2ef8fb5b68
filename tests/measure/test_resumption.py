"""A run that resumes exactly is confirmed, and one that does not is reported."""

import random
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from cli.spoiling import reseal
from regard.errors import ModelError, TrainingError
from regard.files.tensors import read_tensors, write_tensors
from regard.machine.interrupt import Interrupt, Interrupted
from regard.measure.resumption import verify_resume
from regard.recipe import Recipe
from regard.run.checkpoints import paths, step_of
from regard.run.journal import Record
from regard.run.run import Run
from regard.training import train, update
from run.copying import RECIPE, prepared, strings, trained


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Finished at step 11, with checkpoints of steps 8, 10 and 11."""
    directory = tmp_path_factory.mktemp("run") / "run"
    trained(directory, data)
    return directory


def files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (1, "steps 10 to 11, stopped and resumed at 10, end .* as the checkpoint of step 11"),
        (7, "steps 10 to 11, stopped and resumed at 10, end .* as the checkpoint of step 11"),
    ],
)
def test_a_run_is_replayed_to_its_newest_checkpoint(
    run: Path, data: Path, steps: int, said: str
) -> None:
    before = files(run)
    found = verify_resume(run, RECIPE, data, steps, pytest.fail)
    assert re.match(said, found)
    assert files(run) == before


@pytest.mark.parametrize("minutes", [0.0, 20.0])
def test_the_rates_of_a_cooldown_are_repeated(tmp_path: Path, data: Path, minutes: float) -> None:
    recipe = RECIPE.but(cooldown=0.5, minutes=minutes)
    trained(tmp_path / "run", data, recipe)
    found = verify_resume(tmp_path / "run", recipe, data, 2, pytest.fail)
    assert "as the checkpoint of step 11" in found


def test_rates_of_a_cooldown_that_was_broken_off_are_not_repeated(
    tmp_path: Path, data: Path
) -> None:
    """The newest checkpoint's plan does not tell the rates of all steps since the one before."""
    run = tmp_path / "run"
    recipe = RECIPE.but(cooldown=0.5, minutes=20.0, steps=12, save_every=4)
    longer = recipe.but(steps=24)
    for its, last in (recipe, 10), (longer, 12):
        stop_after(run, data, its, last)
    assert [step_of(path) for path in paths(run / "checkpoints")] == [4, 8, 12]
    found = verify_resume(run, longer, data, 4, pytest.fail)
    assert found.startswith("steps 8 to 12, stopped and resumed at 10, end bit for bit as a replay")


def stop_after(run: Path, data: Path, recipe: Recipe, last: int) -> None:
    """Train up to the step `last`, and save it, by a signal."""
    interrupt = Interrupt()

    def stop(record: Record) -> None:
        if record["event"] == "step" and record["step"] == last - 1:
            interrupt.signum = signal.SIGTERM

    with pytest.raises(Interrupted):
        trained(run, data, recipe, interrupt=interrupt, listeners=(stop,), accept_changes=True)


def test_a_run_with_one_checkpoint_is_replayed_twice(data: Path, tmp_path: Path) -> None:
    recipe = RECIPE.but(keep=1, average=1)
    trained(tmp_path / "run", data, recipe)
    found = verify_resume(tmp_path / "run", recipe, data, 4, pytest.fail)
    assert found.startswith(
        "steps 11 to 15, stopped and resumed at 13, end bit for bit as a replay"
    )


def test_another_recipe_or_other_data_is_replayed_twice(
    run: Path, data: Path, tmp_path: Path
) -> None:
    """Its numbers cannot equal those of the newest checkpoint, however exact this machine is."""
    tokenizer = data / "tokenizer.json"
    other = prepared(tmp_path, lines=strings(97, seed=2), tokenizer=tokenizer)
    for recipe, its in (RECIPE.but(rate=0.5), data), (RECIPE, other):
        found = verify_resume(run, recipe, its, 4, pytest.fail)
        assert found.startswith("steps 10 to 14, stopped and resumed at 12, end bit for bit as a")
    searched = RECIPE.but(minutes=3.0, beam=2)  # has no influence on the weights
    assert "as the checkpoint of step 11" in verify_resume(run, searched, data, 4, pytest.fail)


def test_a_run_whose_patience_ended_it_is_replayed_too(data: Path, tmp_path: Path) -> None:
    recipe = RECIPE.but(keep=1, average=1, validate_every=1, patience=1, save_every=0)
    run = Run(tmp_path / "run", recipe, data)
    try:
        train(run, lambda _: {"loss": 1.0})  # the second is no lower
    finally:
        run.close()
    found = verify_resume(
        tmp_path / "run", recipe, data, 1, pytest.fail
    )  # a single step has no stop
    assert found.startswith("steps 2 to 4, stopped and resumed at 3, end bit for bit as a replay")


def test_what_is_not_exact_is_found_out(
    run: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(1)

    def inexact(model: Any, optimizer: Any, batches: Any, rate: float, *others: Any) -> Any:
        return update(model, optimizer, batches, rate * (1 + 1e-6 * draw.random()), *others)

    monkeypatch.setattr("regard.training.update", inexact)
    before = files(run)
    with pytest.raises(TrainingError, match="ends in other numbers than the checkpoint of step 11"):
        verify_resume(run, RECIPE, data, 5, pytest.fail)
    assert files(run) == before


def test_nothing_can_be_verified_without_a_checkpoint(data: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no checkpoint to verify: name a run"):
        verify_resume(tmp_path, RECIPE, data, 5, pytest.fail)


def test_a_state_that_this_version_does_not_know_is_refused(
    run: Path, data: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    reseal(copy / "checkpoints/step-11", state={"later": 1.0})
    with pytest.raises(ModelError, match=r"step-11: is not of this version of regard \(.*later'\)"):
        verify_resume(copy, RECIPE, data, 5, pytest.fail)


@pytest.mark.parametrize("steps", [["step-8", "step-10", "step-11"], ["step-10"]])
def test_what_several_processes_made_is_replayed_twice(
    run: Path, data: Path, tmp_path: Path, steps: list[str]
) -> None:
    """Several processes sum in another order, so one process cannot repeat their numbers."""
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    for checkpoint in (copy / "checkpoints" / step for step in steps):
        states = read_tensors(checkpoint / "optimizer.safetensors")
        states["random.cpu.1"] = states["random.cpu"]
        write_tensors(checkpoint / "optimizer.safetensors", states)
        reseal(checkpoint)
    found = verify_resume(copy, RECIPE, data, 4, pytest.fail)
    assert found.startswith(
        "steps 10 to 14, stopped and resumed at 12, end bit for bit as a replay"
    )
