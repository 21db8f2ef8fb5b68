"""A cooldown: the learning rate falls to 0 in the last part of a run, whatever ends the run."""

import shutil
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import TrainingError
from regard.machine.interrupt import Interrupt, Interrupted
from regard.recipe import Recipe
from regard.run.checkpoints import paths, step_of
from regard.run.journal import Record
from regard.run.model_directory import open_model
from regard.run.state import TrainingState
from regard.schedule import cooldown, learning_rate
from run.copying import RECIPE, journal, prepared, trained

SOME_MINUTES = RECIPE.but(
    steps=10_000, minutes=1.0, cooldown=0.25, save_every=5, keep=99, validate_every=1000
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


class Ticking:
    """A clock that advances by `seconds` each time it is read."""

    def __init__(self) -> None:
        self.now, self.seconds = 1000.0, 0.25

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Ticking:
    """The clock of all runs of a test."""
    ticking = Ticking()
    monkeypatch.setattr("time.monotonic", ticking)
    return ticking


def factors(run: Path, recipe: Recipe) -> list[float]:
    """The factor of each step in the journal: its rate, divided by that of equation (3)."""
    by, d_model = recipe.training, recipe.model.d_model
    return [
        record["rate"] / learning_rate(record["step"], d_model, by.warmup_steps, by.rate)
        for record in journal(run, "step")
    ]


def planned(run: Path) -> list[tuple[int, int]]:
    """Each cooldown in the journal: the step before it, and its last step."""
    return [(record["step"], record["ends"]) for record in journal(run, "cooldown")]


@given(begins=st.integers(0, 50), steps=st.integers(1, 50))
def test_the_factor_falls_by_equal_amounts_to_zero(begins: int, steps: int) -> None:
    ends = begins + steps
    factor = [cooldown(step, begins, ends) for step in range(1, ends + 5)]
    assert factor[:begins] == [1.0] * begins
    assert factor[ends:] == [0.0] * 4
    falls = [a - b for a, b in zip([1.0, *factor[begins:ends]], factor[begins:], strict=False)]
    assert falls == pytest.approx([1 / (steps + 1)] * (steps + 1))


def test_it_is_the_last_part_of_the_steps(tmp_path: Path, data: Path) -> None:
    recipe = RECIPE.but(steps=8, cooldown=0.5)
    trained(tmp_path / "run", data, recipe)
    by_hand = [1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2]
    assert factors(tmp_path / "run", recipe) == pytest.approx(by_hand)
    assert planned(tmp_path / "run") == [(4, 8)]
    trained(tmp_path / "run", data, recipe.but(steps=12), accept_changes=True)
    by_hand = [*by_hand, 4 / 7, 3 / 7, 2 / 7, 1 / 7]
    assert factors(tmp_path / "run", recipe) == pytest.approx(by_hand)


def test_a_run_of_some_minutes_cools_down_and_ends_in_time(
    tmp_path: Path, data: Path, clock: Ticking
) -> None:
    run = tmp_path / "run"
    trained(run, data, SOME_MINUTES, began=clock() - 20)  # 20 s went into preparing
    [(begins, ends)] = planned(run)
    manifest = open_model(run).manifest
    assert manifest["step"] == ends
    assert 55 < manifest["seconds"] <= 61
    assert (ends - begins) / ends == pytest.approx(0.25, abs=0.03)
    by_hand = [cooldown(step, begins, ends) for step in range(1, ends + 1)]
    assert factors(run, SOME_MINUTES) == pytest.approx(by_hand)
    assert by_hand[-1] == pytest.approx(1 / (ends - begins + 1))


def test_steps_that_take_less_than_the_time_end_with_the_cooldown(
    tmp_path: Path, data: Path, clock: Ticking
) -> None:
    trained(tmp_path / "run", data, SOME_MINUTES.but(steps=20))
    assert planned(tmp_path / "run") == [(15, 20)]
    assert open_model(tmp_path / "run").manifest["step"] == 20
    assert clock.now < 1060
    trained(tmp_path / "run", data, SOME_MINUTES.but(steps=32), accept_changes=True)
    assert planned(tmp_path / "run") == [(15, 20), (24, 32)]
    assert open_model(tmp_path / "run").manifest["step"] == 32


def test_the_time_ends_a_run_that_becomes_slower(
    tmp_path: Path, data: Path, clock: Ticking
) -> None:
    run = tmp_path / "run"

    def slower(record: Record) -> None:
        if record["event"] == "cooldown":
            clock.seconds = 0.5

    trained(run, data, SOME_MINUTES, listeners=(slower,))
    [(begins, ends)] = planned(run)
    manifest = open_model(run).manifest
    assert begins < manifest["step"] < ends
    assert manifest["seconds"] <= 64  # each look at the clock takes longer, too
    [over] = journal(run, "over")
    assert over["step"] == manifest["step"]
    assert over["factor"] == pytest.approx(cooldown(over["step"] + 1, begins, ends), abs=1e-4)
    assert over["left"] <= 0


def test_a_run_that_becomes_faster_ends_early(tmp_path: Path, data: Path, clock: Ticking) -> None:
    run = tmp_path / "run"

    def faster(record: Record) -> None:
        if record["event"] == "cooldown":
            clock.seconds = 0.1

    trained(run, data, SOME_MINUTES, listeners=(faster,))
    [over] = journal(run, "over")
    [(_, ends)] = planned(run)
    assert (over["step"], over["factor"]) == (ends, 0.0)
    assert over["left"] > 5
    with pytest.raises(TrainingError, match=r"is over: a time of 1 min was set, and training"):
        trained(run, data, SOME_MINUTES.but(minutes=0.99))


def test_the_plan_follows_the_speed_of_this_machine(
    tmp_path: Path, data: Path, clock: Ticking
) -> None:
    """The run began on a slower machine."""
    run = tmp_path / "run"
    clock.seconds = 2.5
    interrupt = Interrupt()

    def stop(record: Record) -> None:
        if record["event"] == "step" and record["step"] == 3:
            interrupt.signum = signal.SIGTERM

    with pytest.raises(Interrupted):
        trained(run, data, SOME_MINUTES, interrupt=interrupt, listeners=(stop,))
    clock.seconds = 0.05
    trained(run, data, SOME_MINUTES)
    [(_, ends)] = planned(run)
    manifest = open_model(run).manifest
    assert manifest["step"] == ends
    assert 55 < manifest["seconds"] <= 61


def test_a_killed_run_keeps_the_plan(tmp_path: Path, data: Path, clock: Ticking) -> None:
    run = tmp_path / "run"
    whole = trained(run, data, SOME_MINUTES)
    [(begins, ends)] = planned(run)
    rates = factors(run, SOME_MINUTES)
    assert begins < ends - ends % 5 < ends
    for path in paths(run / "checkpoints"):
        if step_of(path) > ends - ends % 5:
            shutil.rmtree(path)
    clock.seconds = 0.01  # much faster from now on
    again = trained(run, data, SOME_MINUTES)
    assert planned(run) == [(begins, ends)]
    assert factors(run, SOME_MINUTES) == rates
    assert all(torch.equal(tensor, again[name]) for name, tensor in whole.items())


def test_a_state_of_an_earlier_version_is_restored() -> None:
    saved = {**TrainingState(step=3).saved(), "starting": 2.5}
    assert TrainingState.restored(saved) == TrainingState(step=3)


def test_with_more_time_the_rate_rises_again(tmp_path: Path, data: Path, clock: Ticking) -> None:
    run, longer = tmp_path / "run", SOME_MINUTES.but(minutes=2.0)
    trained(run, data, SOME_MINUTES)
    shutil.copytree(run, tmp_path / "stopped")
    goes_on_at_a_higher_rate(run, data, longer)
    run, interrupt = tmp_path / "stopped", Interrupt()
    interrupt.signum = signal.SIGTERM
    with pytest.raises(Interrupted):  # right at the beginning of the longer run
        trained(run, data, longer, interrupt=interrupt)
    goes_on_at_a_higher_rate(run, data, longer)


def goes_on_at_a_higher_rate(run: Path, data: Path, longer: Recipe) -> None:
    ends = planned(run)[0][1]
    trained(run, data, longer)
    [_, (begins, last)] = planned(run)
    assert open_model(run).manifest["step"] == last
    assert 115 < open_model(run).manifest["seconds"] <= 121
    by_hand = [1.0] * (begins - ends) + [
        cooldown(s, begins, last) for s in range(begins + 1, last + 1)
    ]
    assert factors(run, longer)[ends:] == pytest.approx(by_hand)


def test_a_run_without_a_cooldown_ignores_the_plan(
    tmp_path: Path, data: Path, clock: Ticking
) -> None:
    run, none = tmp_path / "run", SOME_MINUTES.but(cooldown=0.0)
    interrupt = Interrupt()

    def stop(record: Record) -> None:
        if record["event"] == "cooldown":
            interrupt.signum = signal.SIGTERM

    with pytest.raises(Interrupted):
        trained(run, data, SOME_MINUTES, interrupt=interrupt, listeners=(stop,))
    clock.seconds = 0.1
    trained(run, data, none, accept_changes=True)
    [(begins, ends)] = planned(run)
    step = open_model(run).manifest["step"]
    assert step > ends
    left = begins + 1  # a signal during the work after a step is handled after the next one
    assert factors(run, none)[left:] == pytest.approx([1.0] * (step - left))
