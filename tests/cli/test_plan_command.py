"""`regard train --plan` prints and does nothing else; a start says what it will take."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.refusing import Result, World, contents, regard, unchanged

LINES = [
    "parameters",
    "memory",
    "largest batch",
    "a step",
    "the paper's",
    "time",
    "operations",
    "as in Table 2",
    "disk",
]


def told(result: Result) -> dict[str, str]:
    """The lines of a plan by name."""
    assert result.status == 0, result
    lines = {line[:15].strip(): line[15:] for line in result.stdout.splitlines()}
    assert list(lines) == LINES
    return lines


class Space(NamedTuple):
    """Of a disk."""

    total: int
    used: int
    free: int


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "regard.measure.outline.shutil.disk_usage", lambda path: Space(10**9, 10**9, 7000)
    )


def test_prepared_data_is_planned_without_a_trace(world: World) -> None:
    with unchanged(world.folder):
        result = regard("train", "--plan", "--data", world.made / "data", *world.recipe, *world.out)
    lines = told(result)
    assert result.stderr == ""
    assert lines["a step"] == "300 + 300 tokens at most, by 1 process: --micro-batches 1"
    assert lines["the paper's"] == (
        "25,000 + 25,000 tokens: --micro-batches 1 --set training.accumulate=83"
    )
    assert lines["time"].endswith("for the 4 steps that are left")
    assert re.fullmatch(r"\S+e\d+ a step, \S+e\d+ for all 4, counted", lines["operations"])
    number, seconds, speed = r"(\d\.\de\d+)", r"([\d.]+) (ms|s)", r"(\d\.\de\d+)"
    estimate = re.fullmatch(
        rf"{number} for all, estimated: {seconds} x 1 process x {speed} a second, as measured in "
        r"fp32 \(the paper: base 3\.3e18, big 2\.3e19\)",
        lines["as in Table 2"],
    )
    assert estimate
    total, time, unit, fast = estimate.groups()
    expected = float(time) * (0.001 if unit == "ms" else 1) * float(fast)
    assert float(total) == pytest.approx(expected, rel=0.1)


def test_a_plan_from_text_leaves_the_data_that_training_then_uses(world: World) -> None:
    command = ["train", *world.text, *world.recipe, *world.out]
    told(regard(*command, "--plan"))
    assert [path.name for path in (world.folder / "out").iterdir()] == ["data"]
    prepared = contents(world.folder / "out" / "data")
    assert regard(*command).status == 0
    assert contents(world.folder / "out" / "data").keys() == prepared.keys()
    weights = (world.made / "run" / "model.safetensors").read_bytes()
    assert (world.folder / "out" / "model.safetensors").read_bytes() == weights


def test_a_run_that_has_begun_is_planned_to_its_end(world: World) -> None:
    run, data = world.copy("run"), world.made / "data"
    more = ["--set", "training.steps=90", "--accept-changes"]
    with unchanged(world.folder):
        lines = told(regard("train", "-q", "--plan", "--data", data, "--out", run, *more))
    assert lines["time"].endswith("for the 86 steps that are left")


def test_what_is_tried_is_said_meanwhile(world: World) -> None:
    result = regard(
        "train", "--plan", "--data", world.made / "data", *world.recipe, "--out", world.folder / "x"
    )
    told(result)
    assert re.fullmatch(
        "trying a batch of [0-9,]+ source tokens, the largest\ntiming steps on the data\n",
        result.stderr,
    )


def test_a_start_says_what_it_will_take(world: World, tmp_path: Path) -> None:
    arguments = ["train", "--data", world.made / "data", *world.recipe, "--out", tmp_path / "x"]
    first = regard(*arguments).stderr.splitlines()[0]
    assert re.fullmatch(
        r"memory \S+ kB and each batch's; "
        r"disk \S+ kB for 5 checkpoints of \S+ kB and the model; \S+ [GT]B are free",
        first,
    )


@pytest.mark.usefixtures("full_disk")
def test_too_little_disk_is_said_before_the_first_step(world: World, tmp_path: Path) -> None:
    arguments = ["train", "-q", "--data", world.made / "data", *world.recipe, "--out"]
    warning = (
        r".*: too little disk: \S+ kB will be needed, 7 kB are free and not even one checkpoint "
        "has room: make room, or lower training.keep\n"
    )
    planned = regard(*arguments, tmp_path / "x", "--plan")
    assert re.fullmatch(warning, planned.stderr)
    assert told(planned)["disk"].endswith("7 kB are free")
    assert re.fullmatch(warning, regard(*arguments, tmp_path / "x").stderr)


def test_there_is_nothing_to_plan_without_data(world: World) -> None:
    with unchanged(world.folder):
        result = regard("train", "--plan", *world.out)
    assert result.status == 2
    assert "nothing to train on yet" in result.stderr


def test_the_times_that_are_compared_are_those_of_the_table(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.budget.choice.tokens_per_second", lambda *_: 1000.0)
    unlimited = ["--set", "training.minutes=0"]
    with unchanged(world.folder):
        result = regard("train", "--plan", *world.text, *world.out, "--time", "5m", *unlimited)
    times = [line[:10].strip() for line in result.stdout.splitlines()]
    assert times == ["time", "5 min", "10 min", "1 h", "8 h", "3 days"], result
    assert all(" 100% " in row for row in result.stdout.splitlines()[1:]), result.stdout
    assert result.stderr == ""
    loud = regard("train", "--plan", *world.text, *world.out[1:], "--time", "5m", *unlimited)
    assert loud.stdout == result.stdout
    assert loud.stderr.startswith("counting: 100%, 75 pairs, ")
