"""Copies of a process: the order of results, what they share, and that none is left over."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pytest
import torch

import regard.machine.copies
from machine.ended import assert_gone, ended
from regard.errors import DataError, RegardError
from regard.machine.copies import Copies, can_be_copied
from run.killing import in_fork

pytestmark = pytest.mark.skipif(not can_be_copied(), reason="not on this system")


def copies(job: Any, tasks: Any, count: int = 3, prepare: Any = int) -> closing[Copies[Any, Any]]:
    return closing(Copies(job, tasks, count, prepare))


def children() -> set[int]:
    """The children of this process."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has just ended
            found |= set(map(int, (thread / "children").read_text().split()))
    return found


@pytest.fixture(autouse=True)
def others() -> Iterator[set[int]]:
    """Children from before the test; after the test there must be no others."""
    before = children()
    yield before
    assert_gone([*children() - before])


@pytest.mark.parametrize("count", [1, 3, 50])
def test_results_come_in_the_order_of_the_tasks(count: int, others: set[int]) -> None:
    def slow(number: int) -> int:
        time.sleep(0.01 * (number % 3))
        return number * number

    with copies(slow, range(17), count) as results:
        assert len(children() - others) == min(count, 17)
        assert list(results) == [n * n for n in range(17)]
    with copies(slow, [], count) as results:
        assert list(results) == []


def test_each_begins_with_what_is_there_and_shares_the_work() -> None:
    seen: list[int] = []
    lock = threading.Lock()  # a lock cannot be pickled

    def job(task: bytes) -> tuple[int, int, int]:
        with lock:
            seen.append(len(task))
        time.sleep(0.01)
        return os.getpid(), len(seen), len(task)

    tasks = [b"x" * 2**20] * 20
    with copies(job, tasks, prepare=lambda: seen.append(0)) as results:
        found = list(results)
    assert seen == []  # changes in a copy are lost
    each = {pid for pid, _, _ in found}
    assert len(each) == 3
    assert os.getpid() not in each
    for pid in each:  # `prepare` ran before the first job
        numbers = [calls for one, calls, _ in found if one == pid]
        assert numbers == list(range(2, len(numbers) + 2))


def test_answers_of_any_size_are_fetched() -> None:
    with copies(bytes, [3 * 10**6] * 9) as results:
        assert [len(one) for one in results] == [3 * 10**6] * 9


def test_what_is_refused_is_raised_in_its_turn() -> None:
    def job(number: int) -> int:
        if number >= 11:
            raise DataError("is too large", "numbers", number)
        return number

    with copies(job, range(100)) as results:
        found = iter(results)
        assert [next(found) for _ in range(11)] == list(range(11))
        with pytest.raises(DataError, match="numbers:11: is too large"):
            next(found)


def test_one_that_is_killed_ends_the_work_in_one_sentence() -> None:
    def job(number: int) -> None:
        if number == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    with (
        copies(job, range(9)) as results,
        pytest.raises(RegardError, match=r"was killed, perhaps because memory ran out") as said,
    ):
        list(results)
    assert "\n" not in str(said.value)


def test_to_leave_is_for_the_process_they_were_copied_from() -> None:
    """A scheduler sends the signal to all processes at once."""

    def job(number: int) -> int:
        if number == 5:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
        return number

    with copies(job, range(9)) as results:
        assert list(results) == list(range(9))


def test_who_stops_listening_ends_them_at_once(others: set[int]) -> None:
    begun = time.monotonic()
    with copies(time.sleep, [0, 60, 60, 60]) as results:
        working = [*children() - others]
        assert next(iter(results)) is None
    assert time.monotonic() - begun < 30
    assert_gone(working)


def test_without_room_for_all_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, done = os.fork, []

    def refused_from_the_third() -> int:
        done.append(1)
        if len(done) == 3:
            raise BlockingIOError("Resource temporarily unavailable")
        return fork()

    opened = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, "fork", refused_from_the_third)
    with pytest.raises(OSError, match="unavailable"):
        copies(abs, range(9))
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


@pytest.mark.parametrize("which", [1, 3])
def test_interrupted_while_they_begin_there_are_none(
    which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst moment is after the fork and before the copy is recorded."""
    fork, done = os.fork, []

    def interrupting() -> int:
        done.append(1)
        if (pid := fork()) and len(done) == which:
            raise KeyboardInterrupt
        return pid

    monkeypatch.setattr(os, "fork", interrupting)
    with pytest.raises(KeyboardInterrupt):
        copies(abs, range(9))


class OfTwo(Exception):
    def __init__(self, problem: str, place: int):
        super().__init__(f"{problem} at {place}")


class Local(Exception):
    """An error that holds a lock, and so cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("error", "said"), [(OfTwo("odd", 3), "OfTwo: odd at 3"), (Local(), "Local: holds a lock")]
)
def test_an_error_that_cannot_be_sent_is_told_of(error: Exception, said: str) -> None:
    def job(_: int) -> None:
        raise error

    with copies(job, range(3)) as results, pytest.raises(RegardError, match=said):
        list(results)


@pytest.mark.parametrize(("result", "said"), [(threading.Lock(), "lock"), (lambda: 0, "lambda")])
def test_a_result_that_cannot_be_sent_is_told_of(result: Any, said: str) -> None:
    wrong = (TypeError, AttributeError, PicklingError)
    with copies(lambda _: result, range(3)) as results, pytest.raises(wrong, match=said):
        list(results)


def test_a_thread_that_reads_standard_input_holds_nobody_up() -> None:
    program = (
        "import sys, threading, time\n"
        "from contextlib import closing\n"
        "from regard.machine.copies import Copies\n"
        "threading.Thread(target=sys.stdin.readline).start()\n"
        "time.sleep(0.3)\n"
        "with closing(Copies(abs, range(-9, 0), 3, int)) as results:\n"
        "    print(sum(results), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        late = threading.Timer(60, process.kill)
        late.start()
        assert process.stdout
        assert process.stdout.readline() == "45\n"
        process.communicate("\n")
        late.cancel()


def at_work(rounds: int) -> threading.Thread:
    """A thread that runs without the interpreter lock, like a matrix product; 1 us per round."""
    thread = threading.Thread(target=hashlib.pbkdf2_hmac, args=["sha256", b"", b"", rounds])
    thread.start()
    while not regard.machine.copies._others_run():
        time.sleep(0)
    return thread


def test_other_threads_come_to_rest_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock held by another thread would stay locked in a copy for ever."""
    monkeypatch.setattr(regard.machine.copies, "_REST", 60.0)
    thread = at_work(rounds=500_000)
    with copies(abs, range(9)) as results:
        assert not thread.is_alive()
        assert list(results) == list(range(9))


def test_beside_a_thread_that_works_on_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard.machine.copies, "_REST", 0.05)
    thread = at_work(rounds=5_000_000)
    with pytest.raises(OSError, match="another thread is still running"):
        copies(abs, range(9))
    assert thread.is_alive()
    thread.join()


@pytest.mark.slow
def test_after_threads_that_took_products_copies_can_take_them(others: set[int]) -> None:
    """A joined thread still frees its memory, under a lock that every matrix product needs.

    In a process that has little memory: the less there is, the quicker is a copy made.
    """
    in_fork(take_products_in_turn)
    others |= children()  # the server of forks


def take_products_in_turn() -> None:
    regard.machine.copies._REST = 60.0
    some = torch.ones(64, 64)

    def product(_: int) -> float:
        return float((some @ some)[0, 0])

    for _ in range(100):
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(product, range(16))) == [64.0] * 16
        # One core each: a copy does not have PyTorch's threads, and would wait for them for ever.
        with copies(product, range(3), prepare=partial(torch.set_num_threads, 1)) as results:
            assert list(results) == [64.0] * 3
    assert not children()


def test_a_copy_is_not_copied() -> None:
    with copies(lambda _: can_be_copied(), range(3)) as results:
        assert list(results) == [False] * 3
    assert can_be_copied()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_none_outlives_the_process_it_was_copied_from(signum: int) -> None:
    """The signal goes to all processes, as from a terminal; SIGKILL to the first one only."""
    program = (
        "import signal, sys, time\n"
        "from contextlib import closing\n"
        "from pathlib import Path\n"
        "from regard.machine.copies import Copies\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "print('written', end=' ')\n"
        "with closing(Copies(lambda _: time.sleep(0.1), range(10**6), 3, int)) as results:\n"
        "    print(Path('/proc/thread-self/children').read_text(), flush=True)\n"
        "    for _ in results: print('+', flush=True)"
    )
    first, more, said, status = ended(program, signum)
    assert status == (143 if signum == signal.SIGTERM else -signum)
    assert said.count("Traceback") == (signum == signal.SIGINT)  # its own, not a copy's
    written, *working = first.split()
    assert (written, len(working)) == ("written", 3)
    assert "written" not in more  # a copy must not flush the parent's buffer
    assert_gone([int(pid) for pid in working])
