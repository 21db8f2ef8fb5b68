"""If any process of a preparation is killed, the next preparation starts from a clean state."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from machine.ended import assert_gone
from regard.data import prepare as module
from regard.data.aligned import Progress
from regard.data.prepare import prepare_text
from regard.errors import RegardError
from regard.recipe import Recipe

RECIPE = Recipe().but(vocabulary=307, held_out=7)
STAGES = ["survey", "learn", "encode"]
TELLING = """
import signal, sys, time
from pathlib import Path
from regard.data import aligned, prepare
from regard.recipe import Recipe

aligned._BLOCK_PAIRS, prepare.BYTES_PER_WORKER = 50, 1

def tell(progress):
    if not progress.done:
        return
    print(progress.stage, flush=True)
    if progress.stage == sys.argv[1]:
        signal.pause()

prepare.prepare_text([Path("text.en")], [Path("text.de")], Path("out"),
                Recipe().but(vocabulary=307, held_out=7), workers=2, progress=tell)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for side in ("en", "de"):
        lines = (f"{side} {i} und {i * i}\n" for i in range(997))
        (tmp_path / f"text.{side}").write_text("".join(lines), "utf-8")
    return tmp_path


@contextmanager
def running(folder: Path, stage: str) -> Iterator[subprocess.Popen[str]]:
    """A preparation that stops for ever in the given stage, or runs to its end."""
    with subprocess.Popen(
        [sys.executable, "-c", TELLING, stage],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as process:
        yield process


def come_to(process: subprocess.Popen[str], stage: str) -> list[int]:
    """Wait until a stage is reached; returns the ids of the other processes."""
    assert process.stdout
    while process.stdout.readline() != f"{stage}\n":
        assert process.poll() is None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in children.split()]


def again(folder: Path) -> None:
    prepare_text([folder / "text.en"], [folder / "text.de"], folder / "out", RECIPE)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_preparation_leaves_what_the_next_clears(folder: Path, stage: str) -> None:
    with running(folder, stage) as process:
        pids = come_to(process, stage)
        assert len(pids) == 2
        process.kill()
    assert_gone(pids)
    left = names(folder)
    assert "out" not in left
    assert len(left) == 4  # the text, a lock and the files written so far
    again(folder)
    assert names(folder) == ["out", "text.de", "text.en"]


def test_killed_at_random_it_leaves_all_or_what_was_there(folder: Path) -> None:
    again(folder)
    earlier = content(folder / "out")
    (folder / "text.en").write_text("changed\n" * 997, "utf-8")
    again(folder)
    later = content(folder / "out")
    for _ in range(2):
        (folder / "text.en").write_text("".join(f"en {i} und {i * i}\n" for i in range(997)))
        again(folder)
        assert content(folder / "out") == earlier
        (folder / "text.en").write_text("changed\n" * 997, "utf-8")
        with running(folder, "none") as process:
            time.sleep(random.uniform(0.3, 1.2))
            process.kill()
        assert content(folder / "out") in (earlier, later)
    again(folder)
    assert content(folder / "out") == later
    assert names(folder) == ["out", "text.de", "text.en"]


@pytest.mark.parametrize("replaced", [False, True])
def test_data_that_was_moved_away_when_it_was_killed_is_put_back(
    folder: Path, replaced: bool
) -> None:
    again(folder)
    earlier = content(folder / "out")
    (folder / "out").rename(folder / ".out.12345678.earlier")
    if replaced:
        again(folder)
    else:
        (folder / "text.en").write_text("too few lines\n", "utf-8")
        with pytest.raises(RegardError, match="is the last line"):
            again(folder)
    assert content(folder / "out") == earlier
    assert names(folder) == ["out", "text.de", "text.en"]


def test_what_a_living_process_writes_is_left_to_it(folder: Path) -> None:
    with running(folder, "encode") as process:
        come_to(process, "encode")
        before = [name for name in names(folder) if name.startswith(".out.")]
        assert len(before) == 2
        again(folder)
        assert [name for name in names(folder) if name.startswith(".out.")] == before
        process.kill()
    again(folder)
    assert names(folder) == ["out", "text.de", "text.en"]


def test_what_belongs_to_another_place_is_left_to_it(folder: Path) -> None:
    other = [".out.12345678", ".out.v2.12345678.partial", ".out.1234567g.lock", "out.12345678.lock"]
    for name in other:
        (folder / name).mkdir()
    again(folder)
    assert names(folder) == sorted(["out", "text.de", "text.en", *other])


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_worker_ends_it_in_one_sentence(
    folder: Path, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BYTES_PER_WORKER", 1)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    others = children.read_text().split()  # which other tests have left running
    pids: list[int] = []

    def kill(progress: Progress) -> None:
        if progress.stage == stage and progress.done and not pids:
            pids.extend(int(pid) for pid in children.read_text().split() if pid not in others)
            os.kill(pids[-1], signal.SIGKILL)

    # Small blocks, so that there is still work to do.
    monkeypatch.setattr("regard.data.aligned._BLOCK_PAIRS", 20)
    with pytest.raises(RegardError, match=r"was killed \(signal 9\)") as caught:
        prepare_text(
            [folder / "text.en"], [folder / "text.de"], folder / "out", RECIPE,
            workers=2, progress=kill,
        )  # fmt: skip
    assert "\n" not in str(caught.value)
    assert names(folder) == ["text.de", "text.en"]
    assert_gone(pids)
