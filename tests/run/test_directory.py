"""A run directory: one owner, one recipe, and nothing in it that a kill could leave unusable."""

import errno
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.spoiling import reseal
from regard.errors import DataError, ModelError, RecipeError, RegardError, TrainingError
from regard.files.tensors import read_tensors
from regard.machine.interrupt import Interrupt, Interrupted
from regard.run.averaging import average_run, average_weights
from regard.run.beginning import begun, differences
from regard.run.checkpoints import newest, paths
from regard.run.journal import read_journal
from regard.run.model_directory import open_model
from regard.run.run import Run
from regard.run.state import Due, TrainingState
from run.copying import RECIPE, prepared, strings, trained

SHORT = RECIPE.but(steps=6)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A run of six steps; whoever changes it, changes a copy."""
    out = tmp_path_factory.mktemp("finished") / "run"
    trained(out, data, SHORT)
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def steps(run: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in paths(run / "checkpoints")]


def test_the_final_model_is_the_mean_of_the_last_checkpoints(finished: Path) -> None:
    assert steps(finished) == [2, 4, 6]
    each = [
        read_tensors(finished / "checkpoints" / f"step-{step}" / "weights.safetensors")
        for step in (2, 4, 6)
    ]
    model = open_model(finished)
    for name, parameter in model.transformer.named_parameters():
        mean = (each[0][name].double() + each[1][name] + each[2][name]) / 3
        torch.testing.assert_close(parameter.detach(), mean.float(), atol=1e-7, rtol=0)
    assert model.manifest["step"] == 6
    assert model.manifest["averaged"] == [2, 4, 6]
    assert model.recipe == SHORT


def test_averaging_a_run_anew_keeps_the_newest_step(finished: Path, tmp_path: Path) -> None:
    assert average_run(finished, tmp_path / "new" / "two", 2, pytest.fail) == [4, 6]
    two = open_model(tmp_path / "new" / "two")
    assert (two.manifest["step"], two.manifest["averaged"]) == (6, [4, 6])
    expected = average_weights(newest(finished / "checkpoints", 2, pytest.fail))
    for name, parameter in two.transformer.named_parameters():
        assert torch.equal(parameter, expected[name])
    average_run(finished, tmp_path / "three", 3, pytest.fail)
    assert (
        content(tmp_path / "three")["model.safetensors"] == content(finished)["model.safetensors"]
    )


def test_what_cannot_be_averaged_is_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a run directory"):
        average_run(tmp_path / "missing", tmp_path / "out", 1, pytest.fail)
    with pytest.raises(RegardError, match="exists already"):
        average_run(copy, copy, 1, pytest.fail)
    with pytest.raises(ModelError, match="has 3 whole checkpoints, not 5: give --last 3"):
        average_run(copy, tmp_path / "out", 5, pytest.fail)
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(ModelError, match="no checkpoint to average yet"):
        average_run(copy, tmp_path / "out", 1, pytest.fail)
    assert not (tmp_path / "out").exists()


def test_only_one_process_trains_in_a_directory(tmp_path: Path, data: Path) -> None:
    first = Run(tmp_path / "run", RECIPE, data)
    with pytest.raises(TrainingError, match="another process is training here"):
        Run(tmp_path / "run", RECIPE, data)
    first.close()
    Run(tmp_path / "run", RECIPE, data).close()


def test_where_a_file_system_has_no_locks_a_run_begins_with_a_warning(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    said: list[str] = []
    Run(tmp_path / "run", RECIPE, data, warn=said.append).close()
    assert said == [
        f"{tmp_path / 'run'}: cannot be locked (No locks available): see that nobody else trains "
        "here"
    ]


def test_a_healthy_checkpoint_that_cannot_be_read_is_not_passed_over(
    copy: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To go on from the one before would remove it."""
    before, opened, newest_one = content(copy), os.open, copy / "checkpoints" / "step-6"

    def failing(path: Path, *others: int, **more: Any) -> int:
        if Path(path) == newest_one / "weights.safetensors":
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *others, **more)

    monkeypatch.setattr("os.open", failing)
    with pytest.raises(ModelError, match=rf"Input/output error; or remove {newest_one} to do"):
        trained(copy, data, SHORT)
    monkeypatch.undo()
    assert content(copy) == before
    reseal(newest_one, format=2)  # of a later version
    with pytest.raises(ModelError, match=r"is of format 2, .*; or remove"):
        trained(copy, data, SHORT)
    assert steps(copy) == [2, 4, 6]


def test_a_finished_model_without_checkpoints_is_not_trained_anew(copy: Path, data: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    before = content(copy)
    with pytest.raises(TrainingError, match="holds a finished model and no checkpoints: choose"):
        trained(copy, data, SHORT)
    assert content(copy) == before
    (copy / "model.safetensors").unlink()
    trained(copy, data, SHORT)
    assert steps(copy) == [2, 4, 6]


def test_fewer_checkpoints_than_are_to_be_averaged_are_told(tmp_path: Path, data: Path) -> None:
    said: list[str] = []
    trained(tmp_path / "run", data, SHORT.but(steps=3), warn=said.append)
    assert [line.partition(": ")[2] for line in said] == [
        "the model is the average of 2, not 3, checkpoints: no more were saved "
        "(training.save_every, training.save_minutes)"
    ]


def test_another_recipe_is_refused_naming_what_differs(copy: Path, data: Path) -> None:
    before = content(copy)
    with pytest.raises(RecipeError, match=r"training\.warmup_steps: 7 -> 5") as refusal:
        Run(copy, SHORT.but(warmup_steps=5), data)
    assert "--accept-changes" in str(refusal.value)
    assert content(copy) == before


def test_differences_are_named_with_both_values() -> None:
    assert differences(RECIPE, RECIPE) == []
    assert differences(RECIPE, RECIPE.but(seed=3, beam=2)) == [
        "training.seed: 1 -> 3",
        "search.beam: 4 -> 2",
    ]


def test_a_finished_run_is_extended_knowingly(copy: Path, data: Path) -> None:
    trained(copy, data, SHORT.but(steps=8), accept_changes=True)
    assert steps(copy) == [4, 6, 8]
    assert open_model(copy).manifest["averaged"] == [4, 6, 8]
    assert begun(copy) == SHORT.but(steps=8)
    assert [r["step"] for r in read_journal(copy / "journal.jsonl") if r["event"] == "step"] == [
        *range(1, 9)
    ]


def test_changes_that_do_not_fit_after_all_leave_everything(copy: Path, data: Path) -> None:
    before = content(copy)
    with pytest.raises(ModelError, match="does not fit this recipe"):
        trained(copy, data, SHORT.but(d_ff=29), accept_changes=True)
    assert content(copy) == before
    trained(copy, data, SHORT)  # as it was begun


def test_another_tokenizer_is_never_accepted(copy: Path, tmp_path: Path) -> None:
    """Of prepared text that was replaced, it is the only copy."""
    other = prepared(tmp_path, SHORT, strings(89, seed=5))
    before = content(copy)
    for accept_changes in (False, True):
        with pytest.raises(ModelError, match="the tokenizer changed since this run began"):
            trained(copy, other, SHORT, accept_changes=accept_changes)
        assert content(copy) == before


def test_other_data_is_refused_or_accepted(copy: Path, data: Path, tmp_path: Path) -> None:
    other = prepared(tmp_path, SHORT, strings(89, seed=5), data / "tokenizer.json")
    longer = SHORT.but(steps=8)
    before = content(copy)
    with pytest.raises(ModelError, match="the data changed since this run began"):
        trained(copy, other, SHORT)
    assert content(copy) == before
    warnings: list[str] = []
    trained(copy, other, longer, accept_changes=True, warn=warnings.append)
    assert "the data changed since this run began" in warnings[0]
    assert "reading the data from its beginning" in warnings[1]
    assert open_model(copy).manifest["step"] == 8


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"source_tokens": 3, "target_tokens": 3}, TrainingError),
        ({"layers": 1000, "d_model": 2**15}, TrainingError),
    ],
)
def test_what_cannot_be_trained_leaves_no_trace(
    tmp_path: Path, data: Path, change: dict[str, Any], error: type[RegardError]
) -> None:
    with pytest.raises(error):
        Run(tmp_path / "run", RECIPE.but(**change), data)
    with pytest.raises(DataError):
        Run(tmp_path / "run", RECIPE, tmp_path / "missing")
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path, data: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match="is a file"):
        Run(tmp_path / "file", RECIPE, data)
    with pytest.raises(RegardError, match="cannot write"):
        Run(tmp_path / "file" / "run", RECIPE, data)


def test_what_killed_processes_left_is_cleared_away(copy: Path, data: Path) -> None:
    expected = set(content(copy))
    for left in (
        ".model.tmp",
        "..model.tmp.7.tmp",
        ".data.1f2e.partial",
        "checkpoints/.step-8.7.tmp",
    ):
        (copy / left).mkdir()
        (copy / left / "weights.safetensors").touch()
    (copy / ".journal.jsonl.7.tmp").touch()
    trained(copy, data, SHORT)
    assert set(content(copy)) == expected


def test_a_damaged_last_checkpoint_costs_only_the_steps_since_the_one_before(
    copy: Path, data: Path
) -> None:
    whole = content(copy)
    path = copy / "checkpoints" / "step-6" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    warnings: list[str] = []
    trained(copy, data, SHORT, warn=warnings.append)
    assert [("step-6" in warning, "damaged" in warning) for warning in warnings] == [(True, True)]
    assert content(copy)["model.safetensors"] == whole["model.safetensors"]


def due(run: Run) -> dict[str, list[int]]:
    """The steps after which each is due, in a run whose minutes do not pass."""
    total = run.setup.recipe.training.steps
    each = {step: run.clock.due(TrainingState(step)) for step in range(1, total + 1)}
    return {name: [s for s, d in each.items() if getattr(d, name)] for name in Due._fields}


def test_what_is_due_when(tmp_path: Path, data: Path) -> None:
    recipe = RECIPE.but(steps=11, log_every=4, validate_every=5, save_every=3)
    assert due(Run(tmp_path / "run", recipe, data)) == {
        "log": [1, 4, 8, 11],
        "validate": [5, 10, 11],
        "save": [3, 6, 9, 11],
        "leave": [],
    }


def test_without_a_cadence_only_the_last_step_saves(tmp_path: Path, data: Path) -> None:
    recipe = RECIPE.but(save_every=0, save_minutes=0.0)
    assert due(Run(tmp_path / "run", recipe, data))["save"] == [11]


def test_minutes_make_a_save_due(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    run = Run(tmp_path / "run", RECIPE.but(save_every=0, save_minutes=2.0), data)
    training = run.resume_or_start()
    now += 119
    assert not run.clock.due(TrainingState(5)).save
    now += 1
    assert run.clock.due(TrainingState(5)).save
    training.state.step = 5
    run.save(training)
    assert training.state.seconds == 120
    assert not run.clock.due(TrainingState(6)).save


def test_a_signal_makes_it_leave_at_whatever_step(tmp_path: Path, data: Path) -> None:
    run = Run(tmp_path / "run", RECIPE.but(log_every=10), data)
    assert not any(run.clock.due(TrainingState(3)))
    run.clock.interrupt.signum = signal.SIGTERM
    assert run.clock.due(TrainingState(3)) == Due(log=False, validate=False, save=False, leave=True)
    with pytest.raises(Interrupted, match="step 3") as left:
        run.leave(TrainingState(3))
    assert left.value.status == 143


def test_a_signal_that_comes_too_late_to_be_saved_waits_for_the_next_step(
    tmp_path: Path, data: Path
) -> None:
    """What `train` says is saved is saved."""
    interrupt = Interrupt()

    def validate(model: object) -> dict[str, Any]:
        interrupt.signum = signal.SIGINT  # after step 5 was found not to be due
        return {"loss": 1.0}

    with pytest.raises(Interrupted, match="stopped at step 6, which is saved"):
        rare = RECIPE.but(save_every=0, log_every=100)
        trained(tmp_path / "run", data, rare, validate, interrupt=interrupt)
    assert steps(tmp_path / "run") == [6]


def test_time_is_counted_over_all_starts(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0

    def monotonic() -> float:
        nonlocal now
        now += 0.25  # every look at the clock
        return now

    monkeypatch.setattr("time.monotonic", monotonic)
    interrupt = Interrupt()
    interrupt.signum = signal.SIGINT
    with pytest.raises(Interrupted):
        trained(tmp_path / "run", data, interrupt=interrupt)
    [saved] = newest(tmp_path / "run" / "checkpoints", 1, pytest.fail)
    assert saved.manifest["state"]["seconds"] > 0.25
    now += 1e6  # while nothing ran
    trained(tmp_path / "run", data)
    seconds = [
        r["seconds"] for r in read_journal(tmp_path / "run" / "journal.jsonl") if "seconds" in r
    ]
    assert seconds == sorted(seconds)
    assert saved.manifest["state"]["seconds"] < seconds[1] < seconds[-1] < 1000
    assert open_model(tmp_path / "run").manifest["seconds"] == pytest.approx(seconds[-1], abs=0.1)
