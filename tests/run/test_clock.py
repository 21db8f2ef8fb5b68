"""The clock of a run: what is due when, and how long it has taken."""

import signal
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import ModelError, TrainingError
from regard.machine.interrupt import Interrupt, Interrupted
from regard.paper import BASE
from regard.recipe import Recipe
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


def due_at(run: Run, state: TrainingState) -> Due:
    """What a process that trains alone does after this step."""
    return run.clock.due(state, run.clock.wishes(state))


def due(run: Run) -> dict[str, list[int]]:
    """The steps after which each is due, in a run whose minutes do not pass."""
    total = run.setup.recipe.training.steps
    each = {step: due_at(run, TrainingState(step)) for step in range(1, total + 1)}
    return {name: [s for s, d in each.items() if getattr(d, name)] for name in Due._fields}


def test_what_is_due_when(tmp_path: Path, data: Path) -> None:
    recipe = RECIPE.but(steps=11, log_every=4, validate_every=5, save_every=3)
    assert due(Run(tmp_path / "run", recipe, data)) == {
        "log": [1, 4, 8, 11],
        "validate": [5, 10, 11],
        "save": [3, 6, 9, 11],
        "resume": [11],
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
    assert not due_at(run, TrainingState(5)).save
    now += 1
    assert due_at(run, TrainingState(5)).save
    training.state.step = 5
    run.save(training)
    assert training.state.seconds == 120
    assert not due_at(run, TrainingState(6)).save


def test_a_save_to_resume_from_delays_none_that_is_averaged(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    clock = Run(tmp_path / "run", RECIPE.but(save_every=0, save_minutes=2.0), data).clock
    for minutes, extra, is_due in ((1, True, False), (1, False, True), (1, False, False)):
        now += 60 * minutes
        assert clock.due(TrainingState(5), clock.wishes(TrainingState(5))).save is is_due
        if extra or is_due:
            clock.saved(extra=extra)


def test_what_the_end_takes_is_learnt_from_the_saves(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5 times the longest time from the end of a step to the end of its save."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    run = Run(tmp_path / "run", RECIPE.but(minutes=60.0), data)
    run.clock.start(state := TrainingState(5))
    for seconds in (100, 10):
        due_at(run, state)
        now += seconds  # to validate and to save
        run.clock.saved(extra=False)
    for left, ends in ((151, False), (149, True)):
        now = 1000.0 + 3600 - left
        due_at(run, state)
        assert run.clock.over is ends


@pytest.mark.parametrize("seconds_per_step", [0.03, 0.4, 55.0])
def test_base_averages_checkpoints_1500_steps_apart_at_any_speed(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, seconds_per_step: float
) -> None:
    """The tiny model of this test by the cadence of base, around the end of the run."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    by_base = RECIPE.merged({"training": dict(BASE.training)})
    clock = Run(tmp_path / "run", by_base, data).clock
    saved, resumable, last = [], [], 91_000
    for step in range(91_001, 100_001):
        now += seconds_per_step
        due = clock.due(TrainingState(step), clock.wishes(TrainingState(step)))
        if due.save or due.resume:
            (saved if due.save else resumable).append(step)
            clock.saved(extra=not due.save)
            last = step
        assert (step - last) * seconds_per_step <= 600  # that much a crash costs
    assert saved == [91_500, 93_000, 94_500, 96_000, 97_500, 99_000]
    assert resumable[-1] == 100_000  # the last step, which is not averaged


def test_a_run_averages_what_was_due_by_steps_and_resumes_from_what_was_by_the_clock(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", count(1000.0, 10).__next__)
    recipe = RECIPE.but(steps=23, save_every=5, keep=3, resume_minutes=1.0)
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path / "run", data, recipe, listeners=(lambda r: 1 // (9 - r["step"]),))
    [newest_one] = newest(tmp_path / "run" / "checkpoints", 1, pytest.fail)
    assert 5 < newest_one.step < 9
    assert newest_one.manifest["extra"]
    trained(tmp_path / "run", data, recipe)
    assert open_model(tmp_path / "run").manifest["averaged"] == [10, 15, 20]
    assert open_model(tmp_path / "run").manifest["step"] == 23
    monkeypatch.undo()
    weights = trained(tmp_path / "by steps alone", data, recipe.but(steps=20, resume_minutes=0.0))
    resumed = dict(open_model(tmp_path / "run").network.named_parameters())
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in weights.items())


def test_the_last_step_is_averaged_where_one_is_wanted_or_too_few_were_due(
    tmp_path: Path, data: Path
) -> None:
    recipe = RECIPE.but(steps=7, save_every=5, resume_minutes=10.0, save_minutes=0.0)
    said: list[str] = []
    trained(tmp_path / "few", data, recipe, warn=said.append)
    assert open_model(tmp_path / "few").manifest["averaged"] == [5, 7]
    assert "the average of 2, not 3" in said[0]
    trained(tmp_path / "one", data, recipe.but(average=1), warn=pytest.fail)
    assert open_model(tmp_path / "one").manifest["averaged"] == [7]


def test_a_run_of_some_minutes_ends_in_time_and_goes_on_with_more(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", count(1000.0, 0.25).__next__)
    validate = lambda model: {"loss": 1.0}  # noqa: E731
    recipe = RECIPE.but(steps=10_000, minutes=1.0, save_every=5, validate_every=10)
    began = time.monotonic() - 20  # 20 s went into preparing
    run = Run(tmp_path / "run", recipe, data, began=began)
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
    for minutes in (0.5, 1.99):
        again = Run(tmp_path / "run", recipe.but(minutes=minutes), data)
        with pytest.raises(TrainingError, match=r"run: has taken .* min already; --time is"):
            train(again, validate)
        again.close()
    assert Recipe.read(tmp_path / "run" / "recipe.toml").training.minutes == 2.0


def test_a_model_is_there_until_more_time_has_made_another(tmp_path: Path, data: Path) -> None:
    run, recipe = tmp_path / "run", RECIPE.but(steps=4, minutes=20.0)
    trained(run, data, recipe)
    weights = (run / "model.safetensors").read_bytes()
    interrupt = Interrupt()
    interrupt.signum = signal.SIGINT
    longer = recipe.but(steps=8, minutes=30.0, beam=2)  # a recipe does not know a tuned beam
    with pytest.raises(Interrupted):
        trained(run, data, longer, interrupt=interrupt, accept_changes=True)
    model = open_model(run)
    assert (model.recipe, model.manifest["step"]) == (longer.but(beam=recipe.search.beam), 4)
    assert (run / "model.safetensors").read_bytes() == weights
    with pytest.raises(Interrupted):  # the model is not what this recipe makes
        trained(run, data, longer.but(rate=2.0), interrupt=interrupt, accept_changes=True)
    with pytest.raises(ModelError, match="training has not finished"):
        open_model(run)
    trained(run, data, longer, accept_changes=True)
    model = open_model(run)
    assert (model.recipe, model.manifest["step"]) == (longer, 8)
    (run / "manifest.json").write_text("{}")  # what is damaged does not stop the longer training
    trained(run, data, longer.but(steps=9), accept_changes=True)
    assert open_model(run).manifest["step"] == 9


def test_a_stopped_run_is_not_given_less_time_than_it_took(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", count(1000.0, 5).__next__)
    interrupt = Interrupt()
    interrupt.signum = signal.SIGINT
    recipe = RECIPE.but(minutes=20.0)
    with pytest.raises(Interrupted):
        trained(tmp_path / "run", data, recipe, interrupt=interrupt)
    with pytest.raises(TrainingError, match=r"has taken .* already; --time is the time of"):
        trained(tmp_path / "run", data, recipe.but(minutes=0.25))
    trained(tmp_path / "run", data, recipe.but(minutes=10.0))
    assert Recipe.read(tmp_path / "run" / "recipe.toml").training.minutes == 10.0


def test_a_signal_makes_it_leave_at_whatever_step(tmp_path: Path, data: Path) -> None:
    run = Run(tmp_path / "run", RECIPE.but(log_every=10), data)
    assert not any(due_at(run, TrainingState(3)))
    run.clock.interrupt.signum = signal.SIGTERM
    assert due_at(run, TrainingState(3)) == Due(
        log=False, validate=False, save=False, resume=False, leave=True
    )
    run._state = TrainingState(3)
    with pytest.raises(Interrupted, match="step 3") as left:
        run.leave_if_asked()
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


def test_a_run_of_weeks_keeps_an_hour_and_a_half_for_its_end(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, begun = 1000.0, 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    weeks = 14 * 24 * 3600.0
    run = Run(tmp_path / "run", RECIPE.but(minutes=weeks / 60, tune=True), data)
    run.clock.start(state := TrainingState(5))
    for left, ends in ((5401, False), (5399, True)):
        now = begun + weeks - left
        run.clock.count_time(state)
        assert due_at(run, state).leave is False
        assert run.clock.over is ends
