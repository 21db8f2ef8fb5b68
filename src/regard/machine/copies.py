"""Run a job on many tasks in forked copies of this process; results come in the order of the tasks.

A copy begins with all objects of this process. This process and the copy share a page of memory
until one of the two writes to the page. Unlike threads, copies never wait for each other's
interpreter lock. Changes that a job makes in a copy are lost. In whatever way this process ends,
its copies end, too.

A lock that another thread holds during the fork stays locked in the copy for ever. Therefore no
copy is made before all other threads are idle.
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
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Generic, NoReturn, TypeVar, cast

from regard.errors import RegardError
from regard.machine.interrupt import signals_blocked

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

PR_SET_PDEATHSIG = 1
"""Option of Linux's prctl. It sets the signal that a process receives when its parent ends. The
signal also comes if the thread that forked the process ends and the parent goes on."""

_REST = 1.0
"""If the other threads are not idle after this many seconds, an error is raised."""

_is_copy = False


def can_be_copied() -> bool:
    """Whether this process may be forked: only on Linux, and only if it is not a copy itself.

    On other systems, libraries may fail after a fork.
    """
    return sys.platform == "linux" and not _is_copy


class Copies(Generic[_Task, _Result]):
    """Up to `count` copies of this process that work on `tasks`, until `close` is called.

    Each copy first calls `prepare()`. Raises OSError if the system cannot create the copies, or if
    another thread of this process does not become idle.
    """

    def __init__(
        self,
        job: Callable[[_Task], _Result],
        tasks: Sequence[_Task],
        count: int,
        prepare: Callable[[], object],
    ):
        self._count = len(tasks)
        self._pids: dict[Connection, int] = {}
        _wait_for_rest()
        try:
            with signals_blocked():
                for _ in range(min(count, len(tasks))):
                    self._copy(partial(_run_tasks, job, tasks, prepare))
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[_Result]:
        """Yield `job(task)` for each task, in order.

        If a job raises an exception, or if its result cannot be pickled, the exception is raised
        here in place of the result. Raises RegardError if a copy has ended, for example because it
        was killed.
        """
        left, busy = iter(range(self._count)), set[Connection]()
        answers: dict[int, tuple[_Result, Exception | None]] = {}

        def ask(copy: Connection) -> None:
            if (number := next(left, None)) is not None:
                busy.add(copy)
                with suppress(OSError):  # `_receive` reports a copy (process) that has ended
                    copy.send(number)

        for copy in self._pids:
            ask(copy)
        for number in range(self._count):
            while number not in answers:
                for copy in cast(list[Connection], wait(busy)):
                    busy.remove(copy)
                    done, result, error = self._receive(copy)
                    answers[done] = result, error
                    ask(copy)
            result, error = answers.pop(number)
            if error is not None:
                raise error
            yield result

    def close(self) -> None:
        """Kill the copies, even in the middle of a job."""
        for copy, pid in self._pids.items():
            copy.close()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            with suppress(ChildProcessError):  # other code may have called waitpid for this copy
                os.waitpid(pid, 0)
        self._pids.clear()

    def _copy(self, run: Callable[[Connection, Connection], NoReturn]) -> None:
        here, there = Pipe()
        try:
            # multiprocessing is not used: its child first closes standard input. If a thread of the
            # parent reads from standard input, the child would have to wait for this thread.
            pid = os.fork()
            if not pid:
                run(here, there)
            self._pids[here] = pid
        except BaseException:
            here.close()  # this ends the copy if an interrupt came before `_pids` was set
            raise
        finally:
            there.close()  # only the new copy may hold this end of the pipe, not later copies

    def _receive(self, copy: Connection) -> tuple[int, _Result, Exception | None]:
        try:
            return copy.recv()
        except (EOFError, OSError):
            raise RegardError(
                "a process that shares the work was killed, perhaps because memory ran out: free "
                "some memory or use fewer threads"
            ) from None


def _wait_for_rest() -> None:
    """Wait until no other thread of this process runs; raise OSError if one keeps running.

    A thread that Python has joined may still run for a moment, to free the memory of its matrix
    products.
    """
    until = time.monotonic() + _REST
    # Look twice: a thread that was seen idle may be woken by a thread that is looked at later.
    while _others_run() or _others_run():
        if time.monotonic() > until:
            raise BlockingIOError("another thread is still running")
        time.sleep(0.001)


def _others_run() -> bool:
    here = threading.get_native_id()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            state = (thread / "stat").read_text().rpartition(") ")[2][0]
            # State R: the thread runs or is ready to run. State D: it waits in the kernel.
            if state in "RD" and int(thread.name) != here:
                return True
    return False


def _run_tasks(
    job: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    prepare: Callable[[], object],
    parents_end: Connection,
    own_end: Connection,
) -> NoReturn:
    """Work in a copy: receive a task's number and send its result, until the pipe closes."""
    global _is_copy
    try:
        _is_copy = True
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        parents_end.close()  # otherwise the pipe would not break when the parent ends
        gc.freeze()  # otherwise garbage collection would write to shared pages, and copy them
        prepare()
        with suppress(EOFError, OSError):
            while True:
                number = own_end.recv()
                result, error = _answer(job, tasks[number])
                try:
                    own_end.send((number, result, error))
                except (pickle.PicklingError, AttributeError, TypeError) as unsendable:
                    own_end.send((number, None, _sent(unsendable)))
    finally:
        # sys.exit is not used: it would flush the parent's buffers and call the parent's handlers.
        os._exit(1)


def _answer(
    job: Callable[[_Task], _Result], task: _Task
) -> tuple[_Result, None] | tuple[None, Exception]:
    try:
        return job(task), None
    except Exception as error:
        return None, _sent(error)


def _sent(error: Exception) -> Exception:
    """The error, pickled and unpickled; if this fails, a RegardError that describes the error."""
    try:
        return cast(Exception, pickle.loads(pickle.dumps(error)))
    except Exception:
        return RegardError(f"{type(error).__name__}: {error}")
