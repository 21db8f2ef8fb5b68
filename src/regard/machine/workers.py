"""A job done on many tasks by several processes, with the results in the order of the tasks.

Each process is a second interpreter that shares nothing with this one but two pipes. However this
process ends, its pipes end with it, and then so do the others. If one of the others ends, asking it
fails at once.
"""

from __future__ import annotations

import os
import pickle
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from regard.errors import RegardError
from regard.machine.child import pipes, started

Task = TypeVar("Task")
Result = TypeVar("Result")

_AHEAD = 2
"""Tasks for each process that are given out or done and not yet fetched: it bounds memory."""


def usable_cores() -> int:
    """The processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """`count` processes, started at once, until the end of a `with` block.

    With none the work is done in this process.
    """

    def __init__(self, count: int):
        self._processes = [_Process() for _ in range(count)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(max(1, len(self._processes)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.end()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.close()

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [process.pid for process in self._processes]

    def map(self, job: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """`job(task)` for each task, in order; few tasks are taken ahead of their results.

        `job` is pickled once for each process, and may keep a state there. What a job or `tasks`
        refuses is raised in its turn, after the results before it. Raises RegardError where a
        process came to another end.
        """
        if not self._processes:
            yield from map(job, tasks)
            return
        begun: deque[Future[Result]] = deque()
        for future in self._given_out(job, tasks):
            begun.append(future)
            if len(begun) == _AHEAD * len(self._processes):
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()

    def _given_out(
        self, job: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Iterator[Future[Result]]:
        try:
            for task in tasks:
                yield self._threads.submit(self._ask, job, task)
        except RegardError as error:
            refused: Future[Result] = Future()
            refused.set_exception(error)
            yield refused

    def _ask(self, job: Callable[[Task], Result], task: Task) -> Result:
        process = self._idle.get()
        try:
            return process.ask(job, task)
        finally:
            self._idle.put(process)


class _Process:
    """One of them, asked by one thread at a time."""

    def __init__(self) -> None:
        self._job: object = None
        self._process = _started()
        self.pid = self._process.pid

    def ask(self, job: Callable[[Task], Result], task: Task) -> Result:
        assert self._process.stdin
        assert self._process.stdout
        try:
            news = (job,) if job is not self._job else ()
            pickle.dump((news, task), self._process.stdin, protocol=5)
            self._process.stdin.flush()
            self._job = job
            result, error = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            status = self._process.wait()
            raise RegardError(
                f"a process that shares the work was ended ({_cause(status)}); see that memory is "
                "not short, or take fewer --workers, and start again"
            ) from None
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        """Whatever it does; a thread that waits for its answer learns of it."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """When no thread waits any more."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            with suppress(OSError):
                pipe.close()


def serve() -> None:
    """What each process does: a job, again and again, until nobody asks any more."""
    asked, given = pipes()
    job: Any = None
    answer: tuple[Any, Exception | None]
    with suppress(EOFError, OSError, MemoryError):
        while True:
            news, task = pickle.load(asked)
            [job] = news or [job]
            try:
                answer = job(task), None
            except MemoryError:
                raise
            except Exception as error:
                answer = None, error
            pickle.dump(answer, given, protocol=5)
            given.flush()
    os._exit(1)  # without a last word to a pipe that may be gone


def _started() -> subprocess.Popen[bytes]:
    try:
        return started(
            "from regard.machine.workers import serve; serve()",
            OMP_NUM_THREADS="1",
            OPENBLAS_NUM_THREADS="1",
        )
    except OSError as error:
        raise RegardError(
            f"another process cannot be started: {error.strerror}: take fewer --workers"
        ) from None


def _cause(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
