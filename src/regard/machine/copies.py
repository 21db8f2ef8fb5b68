"""A job done on many tasks by copies of this process, with the results in the order of the tasks.

A copy is a fork: it has all that is in memory at once and shares it, as long as neither writes to
it. Unlike threads, copies never wait for each other's Python. What a job changes in a copy is lost.
However this process ends, its copies end with it. What another thread holds locked at that instant
is locked in a copy for ever; so there are none before the other threads rest.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Generic, NoReturn, TypeVar, cast

from regard.errors import RegardError

Task = TypeVar("Task")
Result = TypeVar("Result")

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that a process gets when the one it was copied from ends."""

_REST = 1.0
"""Seconds that the other threads get to come to rest."""

_is_copy = False


def can_be_copied() -> bool:
    """Elsewhere than on Linux a library may not survive it; a copy is not copied again."""
    return sys.platform == "linux" and not _is_copy


class Copies(Generic[Task, Result]):
    """Up to `count` copies of this process at work on `tasks`, until they are closed.

    Each begins with `prepare()`. Raises OSError where the system has no room for them, or another
    thread of this process works on.
    """

    def __init__(
        self,
        job: Callable[[Task], Result],
        tasks: Sequence[Task],
        count: int,
        prepare: Callable[[], object],
    ):
        self._count = len(tasks)
        self._pids: dict[Connection, int] = {}
        _wait_for_rest()
        try:
            with _deaf():
                for _ in range(min(count, len(tasks))):
                    self._copy(job, tasks, prepare)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Result]:
        """`job(task)` for each task, in order.

        What a job refuses is raised in its turn. Raises RegardError where a copy came to another
        end, as if the system is short of memory.
        """
        left, busy = iter(range(self._count)), set[Connection]()
        answers: dict[int, tuple[Result, Exception | None]] = {}

        def ask(copy: Connection) -> None:
            if (number := next(left, None)) is not None:
                busy.add(copy)
                with suppress(OSError):  # one that has ended is heard of
                    copy.send(number)

        for copy in self._pids:
            ask(copy)
        for number in range(self._count):
            while number not in answers:
                for copy in cast(list[Connection], wait(busy)):
                    busy.remove(copy)
                    done, result, error = self._heard(copy)
                    answers[done] = result, error
                    ask(copy)
            result, error = answers.pop(number)
            if error is not None:
                raise error
            yield result

    def close(self) -> None:
        """End them, whatever they do."""
        for copy, pid in self._pids.items():
            copy.close()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            with suppress(ChildProcessError):  # another part of the program may wait for them
                os.waitpid(pid, 0)
        self._pids.clear()

    def _copy(
        self,
        job: Callable[[Task], Result],
        tasks: Sequence[Task],
        prepare: Callable[[], object],
    ) -> None:
        here, there = Pipe()
        try:
            # Not by multiprocessing: its copies wait for a thread that reads standard input.
            pid = os.fork()
            if not pid:
                _live(job, tasks, prepare, here, there)
            self._pids[here] = pid
        except BaseException:
            here.close()  # so that a copy ends which this process was interrupted from noting
            raise
        finally:
            there.close()  # so that it ends with the copy, and the next copy has none of it

    def _heard(self, copy: Connection) -> tuple[int, Result, Exception | None]:
        try:
            answer: tuple[int, Result, Exception | None] = copy.recv()
        except (EOFError, OSError):
            raise RegardError(
                "a process that shares the work was ended; see that memory is not short, or use "
                "fewer threads"
            ) from None
        return answer


def _wait_for_rest() -> None:
    """Until no other thread of this process runs; raises OSError where one runs on.

    A thread that Python has joined may run still: it frees what its products took.
    """
    until = time.monotonic() + _REST
    while _others_run() or _others_run():  # one that rested may have waited for the last that ran
        if time.monotonic() > until:
            raise BlockingIOError("another thread is at work")
        time.sleep(0.001)


def _others_run() -> bool:
    here = threading.get_native_id()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            state = (thread / "stat").read_text().rpartition(") ")[2][0]
            if state in "RD" and int(thread.name) != here:  # running, or about to
                return True
    return False


@contextmanager
def _deaf() -> Iterator[None]:
    """Signals that ask a command to leave are for this process to obey: copies block them."""
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept)


def _live(
    job: Callable[[Task], Result],
    tasks: Sequence[Task],
    prepare: Callable[[], object],
    asking: Connection,
    asked: Connection,
) -> NoReturn:
    """What a copy does: the tasks that it is told the numbers of, until nobody asks any more."""
    global _is_copy
    try:
        _is_copy = True
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        asking.close()  # the asker's end: where that has ended before, so does the pipe
        gc.freeze()  # to look through what is shared would copy it
        prepare()
        with suppress(EOFError, OSError):
            while True:
                number = asked.recv()
                asked.send((number, *_answer(job, tasks[number])))
    finally:
        os._exit(1)  # nothing of the asker's is to be written or closed twice


def _answer(
    job: Callable[[Task], Result], task: Task
) -> tuple[Result, None] | tuple[None, Exception]:
    try:
        return job(task), None
    except Exception as error:
        return None, _sent(error)


def _sent(error: Exception) -> Exception:
    """The error, or one that tells of it where it does not survive a pipe."""
    try:
        return cast(Exception, pickle.loads(pickle.dumps(error)))
    except Exception:
        return RegardError(f"{type(error).__name__}: {error}")
