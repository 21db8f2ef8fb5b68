"""Worker processes: the order of results, the tasks read ahead, and that none is left over."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from machine.ended import assert_gone, ended
from regard.errors import DataError, RegardError
from regard.machine.workers import Workers


def squared(number: int) -> int:
    time.sleep(0.01 * (number % 3))
    return number * number


def until_there(path: Path, name: str) -> None:
    """`long` waits until `last` has made the file."""
    if name == "last":
        path.touch()
    while name == "long" and not path.exists():
        time.sleep(0.01)


def workers_refusing(workers: Workers) -> Iterator[tuple[int, int]]:
    return workers.unordered(partial(refused_from, 4), range(5))


def refused_from(limit: int, number: int) -> int:
    if number >= limit:
        raise DataError("is too large", "numbers", number)
    return number


class Counting:
    """Counts the calls of this copy of the job."""

    calls = 0

    def __call__(self, task: bytes) -> tuple[int, int]:
        self.calls += 1
        return os.getpid(), self.calls


def chatty(number: int) -> int:
    print("as a library might")  # noqa: T201
    os.write(1, b"as its C code might\n")
    return number


def exhausted(_: int) -> None:
    raise MemoryError


@pytest.fixture
def three() -> Iterator[Workers]:
    with Workers(3) as workers:
        yield workers
    assert_gone(workers.pids)


@pytest.mark.parametrize("count", [0, 1, 3])  # 0: work in this process
def test_results_come_in_the_order_of_the_tasks(count: int) -> None:
    with Workers(count) as workers:
        assert len(workers.pids) == count
        assert list(workers.map(squared, range(17))) == [n * n for n in range(17)]
        assert list(workers.map(str, range(3))) == ["0", "1", "2"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_results_come_as_soon_as_they_are_there(count: int) -> None:
    with Workers(count) as workers:
        found = list(workers.unordered(squared, range(7)))
    assert sorted(found) == [(number, number * number) for number in range(7)]
    if count < 2:
        assert [number for number, _ in found] == list(range(7))


def test_a_short_task_does_not_wait_for_a_long_one(tmp_path: Path) -> None:
    job = partial(until_there, tmp_path / "there")
    with Workers(2) as workers:
        found = [name for name, _ in workers.unordered(job, ["long", "short", "last"])]
    assert found[0] == "short"
    assert set(found[1:]) == {"last", "long"}


def test_a_refusal_ends_unordered_work(three: Workers) -> None:
    with pytest.raises(DataError, match="numbers:4: is too large"):
        list(workers_refusing(three))


def test_what_is_printed_is_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    with Workers(1) as workers:
        assert list(workers.map(chatty, range(3))) == [0, 1, 2]
    assert capfd.readouterr().err.count("as its C code might") == 3


def test_a_job_lives_in_each_process_as_long_as_it_is_asked(three: Workers) -> None:
    tasks = [b"x" * 2**20] * 20  # more than a pipe holds
    for _ in range(2):
        calls: dict[int, list[int]] = {}
        for pid, number in three.map(Counting(), tasks):
            calls.setdefault(pid, []).append(number)
        assert sorted(n for numbers in calls.values() for n in numbers) == sorted(
            n + 1 for numbers in calls.values() for n in range(len(numbers))
        )
        assert calls.keys() <= set(three.pids)


def test_few_tasks_are_taken_ahead_of_their_results(three: Workers) -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    found = []
    for square in three.map(squared, tasks()):
        assert len(taken) <= len(found) + 6
        found.append(square)
    assert len(found) == len(taken) == 100


@pytest.mark.parametrize("count", [0, 3])
def test_what_is_refused_is_raised_in_its_turn(count: int) -> None:
    def tasks(bad: int) -> Iterator[int]:
        yield from range(bad)
        raise DataError("has no more", "tasks")

    with Workers(count) as workers:
        for bad, refusal in ((7, "tasks: has no more"), (20, "numbers:11: is too large")):
            done = []
            with pytest.raises(DataError, match=refusal):
                done.extend(workers.map(partial(refused_from, 11), tasks(bad)))
        assert list(workers.map(squared, [3])) == [9]


def test_results_before_a_refusal_are_seen(three: Workers) -> None:
    results = three.map(partial(refused_from, 11), range(100))
    assert [next(results) for _ in range(11)] == list(range(11))
    with pytest.raises(DataError):
        next(results)


def test_a_process_that_is_killed_ends_the_work_in_one_sentence(three: Workers) -> None:
    threading.Timer(0.3, os.kill, (three.pids[1], signal.SIGKILL)).start()
    with pytest.raises(
        RegardError, match=r"was killed \(signal 9\).* use fewer processes"
    ) as caught:
        list(three.map(squared, range(10**6)))
    assert "\n" not in str(caught.value)


def test_a_process_that_has_no_memory_left_ends_the_work_in_one_sentence(three: Workers) -> None:
    with pytest.raises(RegardError, match="perhaps because memory ran out"):
        list(three.map(exhausted, range(3)))


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT, signal.SIGHUP])
def test_none_outlives_the_process_that_started_them(signum: int) -> None:
    """The signal goes to all processes, as from a terminal; SIGKILL to the first one only."""
    program = (
        "import time; from regard.machine.workers import Workers\n"
        "with Workers(3) as workers:\n"
        "    print(*workers.pids, flush=True)\n"
        "    for _ in workers.map(bytes, [10**6] * 10**6): print('+', flush=True)"
    )
    first, _, said, status = ended(program, signum)
    assert status == -signum
    assert said.count("Traceback") == (signum == signal.SIGINT)  # its own, not a worker's
    assert_gone([int(pid) for pid in first.split()])


def test_they_start_without_what_they_do_not_need() -> None:
    program = "import sys, regard.data.prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_place_of_modules_that_is_no_text_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("somewhere")])
    with Workers(1) as workers:
        assert list(workers.map(squared, [3])) == [9]
