"""The journal is JSON, line by line, and has each step that counts once."""

import errno
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.run.journal import Journal, Record, read_journal, tensorboard


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def filled(path: Path) -> Journal:
    """A start, and steps 1 to 7."""
    journal = Journal(path)
    journal.write("start", step=0)
    for step in range(1, 8):
        journal.write("step", step=step, loss=1 / step)
    return journal


def steps(path: Path) -> list[int]:
    return [record["step"] for record in read_journal(path)]


def test_records_come_back_in_order_with_event_and_time(path: Path) -> None:
    journal = Journal(path)
    journal.write("step", step=1, loss=2.5)
    journal.write("validation", step=1, samples=[{"source": "naïve"}])
    first, second = read_journal(path)
    assert (first["event"], first["loss"]) == ("step", 2.5)
    assert second["samples"] == [{"source": "naïve"}]
    assert first["time"] <= second["time"]
    assert "naïve" in path.read_text("utf-8")


def test_what_is_no_number_becomes_null_in_the_file_only(path: Path) -> None:
    heard: list[Record] = []
    Journal(path, (heard.append,)).write(
        "step", a=math.nan, b=math.inf, c=-math.inf, d=1.0, e=[{"x": math.nan}, (math.inf, 2)]
    )
    text = path.read_text()
    record = json.loads(text, parse_constant=pytest.fail)
    assert [record[name] for name in "abcd"] == [None, None, None, 1.0]
    assert record["e"] == [{"x": None}, [None, 2]]
    assert math.isnan(heard[0]["a"])


def test_a_path_that_is_not_utf_8_comes_back(path: Path) -> None:
    Journal(path).write("begin", model=os.fsdecode(b"models/\xff"), step=0)
    assert os.fsencode(read_journal(path)[0]["model"]) == b"models/\xff"


def test_rewinding_forgets_the_steps_after(path: Path) -> None:
    journal = filled(path)
    journal.rewind(5)
    assert steps(path) == [0, 1, 2, 3, 4, 5]
    journal.write("step", step=6)
    assert steps(path) == [0, 1, 2, 3, 4, 5, 6]
    journal.rewind(0)
    assert steps(path) == [0]


def test_rewinding_further_than_written_changes_nothing(path: Path) -> None:
    Journal(path).rewind(3)
    assert not path.exists()
    journal = filled(path)
    before = path.read_bytes()
    journal.rewind(7)
    assert path.read_bytes() == before


@settings(deadline=None)  # a disk takes its time to sync
@given(st.integers(min_value=1))
def test_a_last_line_that_a_kill_cut_short_is_dropped(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "journal.jsonl"
    journal = filled(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 1 - cut % len(content)])
    whole = path.read_bytes().count(b"\n")
    assert steps(path) == list(range(whole))  # also while another process writes it
    journal.rewind(7)
    journal.write("step", step=8)
    assert steps(path) == [*range(whole), 8]


def test_lines_that_are_no_records_are_dropped(path: Path) -> None:
    journal = filled(path)
    with path.open("ab") as file:
        file.write(b'\0\0\0\xff\n[1]\n7\n{}\n{"event": 3, "step": 1}\n{"step": null}\n{"step"\n')
        file.write(b"[" * 10**5 + b"\n")
        file.write(b'{"event": "step", "step": 1%s}\n' % (b"0" * 400))
    assert steps(path) == list(range(8))
    damaged = path.read_bytes()
    journal.rewind(7)
    assert steps(path) == list(range(8))
    assert path.read_bytes() != damaged


def test_a_journal_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="journal: cannot write: Is a directory"):
        (tmp_path / "journal").mkdir()
        Journal(tmp_path / "journal").write("step", step=1)


# The board's own modules use what their dependencies are giving up.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")
def test_tensorboard_shows_each_number_once_though_a_run_came_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def run(begin: int, end: int, loss: float) -> None:
        listen = tensorboard(tmp_path / "board", pytest.fail)
        listen({"event": "start", "time": 1.0, "step": begin})
        for step in range(begin + 1, end + 1):
            listen({"event": "step", "time": 1.0, "step": step, "loss": loss, "source_tokens": 3})

    run(0, 5, loss=2.0)
    run(3, 7, loss=1.0)  # steps 4 and 5 again
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    assert [(s.step, s.value) for s in board.Scalars("step/loss")] == [
        (1, 2.0), (2, 2.0), (3, 2.0), (4, 1.0), (5, 1.0), (6, 1.0), (7, 1.0),
    ]  # fmt: skip
    assert board.Tags()["scalars"] == ["step/loss"]


def test_the_board_writes_nothing_before_a_run_starts(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    tensorboard(tmp_path / "board", pytest.fail)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard")
def test_a_board_that_cannot_be_written_is_told_once_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    said: list[str] = []
    listen = tensorboard(tmp_path / "board", said.append)
    listen({"event": "start", "time": 1.0, "step": 0})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter.add_scalar", full)
    for step in (1, 2):
        listen({"event": "step", "time": 1.0, "step": step, "loss": 2.0})
    assert said == [f"{tmp_path / 'board'}: no more events are written: No space left on device"]
