"""Another process forms the same batches as this one, and never outlives it."""

import errno
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from regard.data.batches import Batch, Batches
from regard.data.pairs import Pairs
from regard.data.prefetch import AHEAD, Prefetched
from regard.data.training_data import training_batches
from regard.errors import DataError, TrainingError
from regard.recipe import Recipe
from run.copying import RECIPE, prepared
from run.killing import Fork

PACKED = RECIPE.but(layout="packed", row_length=16)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


def ahead(data: Path, batches: Batches, recipe: Recipe = PACKED) -> Prefetched:
    """The batches, if the data is still what it is now."""
    fingerprint = Pairs.open(data, "train").fingerprint
    return Prefetched(batches, partial(training_batches, data, recipe, fingerprint=fingerprint))


def tensors(batch: Batch) -> tuple[torch.Tensor, ...]:
    return *batch.source, *batch.target, batch.labels


def assert_same(one: Batch, other: Batch) -> None:
    assert one[3:] == other[3:]
    for mine, theirs in zip(tensors(one), tensors(other), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.dtype == theirs.dtype


def assert_ended(pid: int) -> None:
    deadline = time.monotonic() + 60
    status = Path(f"/proc/{pid}/stat")
    # an orphan may be listed as a zombie for a while
    while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "the process stayed"
        time.sleep(0.01)


@pytest.mark.parametrize("recipe", [RECIPE, PACKED], ids=["grouped", "packed"])
def test_batches_and_positions_are_those_of_taking_them_here(data: Path, recipe: Recipe) -> None:
    """The batches start at any position, cross epochs, and exceed those formed in advance."""
    plain = training_batches(data, recipe)
    plain.take(5)
    resumed = training_batches(data, recipe)
    resumed.restore(plain.state())
    packed = ahead(data, resumed, recipe)
    for n in (0, 1, 2 * plain.batches_per_epoch, AHEAD + 23):
        for mine, theirs in zip(packed.take(n), plain.take(n), strict=True):
            assert_same(mine, theirs)
        assert (packed.state(), packed.epoch) == (plain.state(), plain.epoch)
    packed.close()


def test_what_is_raised_there_is_raised_here(data: Path, tmp_path: Path) -> None:
    batches = training_batches(data, PACKED)
    missing = partial(training_batches, tmp_path, PACKED)
    with pytest.raises(DataError) as here:
        missing()
    other = Prefetched(batches, missing)
    for _ in range(2):  # and once more at the next call
        with pytest.raises(DataError) as there:
            other.take(1)
        assert str(there.value) == str(here.value)


def test_when_it_is_killed_that_is_said(data: Path) -> None:
    packed = ahead(data, training_batches(data, PACKED))
    packed.take(1)
    os.kill(packed.pid, signal.SIGKILL)
    with pytest.raises(TrainingError, match=r"ended with status -9: .* continues from the last"):
        packed.take(1000)


def test_it_leaves_signals_to_this_process_and_ends_with_the_object(data: Path) -> None:
    packed = ahead(data, training_batches(data, PACKED))
    for _ in range(2):  # also before the process has started its work
        for signum in (signal.SIGINT, signal.SIGTERM):
            os.kill(packed.pid, signum)
        packed.take(AHEAD + 1)
    pid = packed.pid
    del packed
    assert not Path(f"/proc/{pid}").exists()


def test_data_that_was_replaced_meanwhile_is_refused(data: Path, tmp_path: Path) -> None:
    batches, other = training_batches(data, PACKED), prepared(tmp_path, RECIPE.but(seed=2))
    fingerprint = Pairs.open(data, "train").fingerprint
    make = partial(training_batches, other, PACKED, fingerprint=fingerprint)
    with pytest.raises(TrainingError, match="has other data than when this run began"):
        Prefetched(batches, make).take(1)


def take_for_ever(data: Path, folder: Path) -> None:
    """Say in `folder`/1 which process makes the batches, and in `folder`/2 what is wrong."""
    for stream in (1, 2):
        with (folder / str(stream)).open("wb") as file:
            os.dup2(file.fileno(), stream)
    batches = ahead(data, training_batches(data, PACKED))
    os.write(1, f"{batches.pid}\n".encode())
    while True:
        batches.take(1)


def test_it_ends_silently_when_this_process_is_killed(data: Path, tmp_path: Path) -> None:
    said = tmp_path / "1"
    process = Fork(target=take_for_ever, args=(data, tmp_path))
    process.start()
    while not said.exists() or not said.read_text().endswith("\n"):
        assert process.is_alive()
        time.sleep(0.005)
    time.sleep(random.random())  # before the process has started its work, or later
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert_ended(int(said.read_text()))
    assert (tmp_path / "2").read_text() == ""


def test_it_ends_silently_when_python_ends_while_it_receives(data: Path) -> None:
    program = (
        "import pickle, signal, sys, time; from regard.data.prefetch import Prefetched\n"
        "signal.signal(signal.SIGHUP, lambda *_: sys.exit())\n"
        "make = pickle.loads(bytes.fromhex(sys.argv[1])); batches = Prefetched(make(), make)\n"
        "print(batches.pid, flush=True)\n"
        "while True: batches.take(1)"
    )
    make = pickle.dumps(partial(training_batches, data, PACKED)).hex()
    with subprocess.Popen(
        [sys.executable, "-c", program, make],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        time.sleep(random.random())  # before the process has started its work, or later
        process.send_signal(signal.SIGHUP)
        assert process.communicate() == ("", "")
        assert process.returncode == 0
    assert_ended(pid)


def test_a_process_that_cannot_be_started_is_named(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", full)
    with pytest.raises(TrainingError, match="makes batches cannot be started: Resource temporari"):
        ahead(data, training_batches(data, PACKED))
