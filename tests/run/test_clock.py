"""The clock of a run: what is due when, and how long it has taken."""

import signal
from pathlib import Path
from typing import Any

import pytest

from regard.machine.interrupt import Interrupt, Interrupted
from regard.run.checkpoints import newest, paths
from regard.run.journal import read_journal
from regard.run.model_directory import open_model
from regard.run.run import Run
from regard.run.state import Due, TrainingState
from regard.training import train
from run.copying import RECIPE, prepared, trained


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


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


def test_a_run_of_some_minutes_ends_in_time_and_goes_on_with_more(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0

    def passing() -> float:
        nonlocal now
        now += 0.5
        return now

    monkeypatch.setattr("time.monotonic", passing)
    validate = lambda model: {"loss": 1.0}  # noqa: E731
    recipe = RECIPE.but(steps=10_000, minutes=1.0, save_every=5, validate_every=10)
    run = Run(tmp_path / "run", recipe, data, began=now - 20)  # 20 s went into preparing
    train(run, validate)
    run.close()
    records = read_journal(run.directory.path / "journal.jsonl")
    ends = [record for record in records if record["event"] == "finish"]
    assert 55 <= ends[-1]["seconds"] <= 61
    step = ends[-1]["step"]
    assert [r["step"] for r in records if r["event"] == "validation"][-1] == step
    for minutes, goes_on in ((1.0, False), (2.0, True)):
        again = Run(tmp_path / "run", recipe.but(minutes=minutes), data)
        train(again, validate)
        again.close()
        ends = [
            r for r in read_journal(run.directory.path / "journal.jsonl") if r["event"] == "finish"
        ]
        assert (ends[-1]["step"] > step) == goes_on
    assert 110 <= ends[-1]["seconds"] <= 121


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
    """If `train` says that a step is saved, it is."""
    interrupt = Interrupt()

    def validate(model: object) -> dict[str, Any]:
        interrupt.signum = signal.SIGINT  # after step 5 was found not to be due
        return {"loss": 1.0}

    with pytest.raises(Interrupted, match="stopped at step 6, which is saved"):
        rare = RECIPE.but(save_every=0, log_every=100)
        trained(tmp_path / "run", data, rare, validate, interrupt=interrupt)
    assert [path.name for path in paths(tmp_path / "run" / "checkpoints")] == ["step-6"]


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
