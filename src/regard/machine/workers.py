"""Run a job on many tasks in worker processes; `map` yields results in the order of the tasks.

Each worker is a new Python interpreter, connected to this process by two pipes only. In whatever
way this process ends, the pipes close, and each worker ends, too, at the latest when its present
task is done. When a worker ends, the next request to it fails at once.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from regard.errors import RegardError
from regard.machine.child import pipes, started

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

_AHEAD = 2
"""For each process, `map` holds at most this many tasks: tasks that wait, tasks in work, and
finished tasks whose results are not fetched yet. This limits memory."""


class Workers:
    """`count` processes, started by the constructor and ended at the end of a `with` block.

    If `count` is 0, this process does the work. `option` names the option of the command line that
    sets `count`, for errors: "use fewer {option}". Raises RegardError if a process cannot be
    started.
    """

    def __init__(self, count: int, option: str = "processes (regard prepare --workers)"):
        self._processes = [_Process(option) for _ in range(count)]
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
        """The system's ids of the processes."""
        return [process.pid for process in self._processes]

    def map(self, job: Callable[[_Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        """Yield `job(task)` for each task, in order; only a few tasks are read in advance.

        `job` is pickled once for each process, and may keep state in the process. If a job raises
        an error, or if iterating over `tasks` raises a RegardError, the error is raised here after
        the results of the earlier tasks. Raises RegardError if a process was killed.
        """
        if not self._processes:
            yield from map(job, tasks)
            return
        begun: deque[Future[_Result]] = deque()
        for future in self._submitted(job, tasks):
            begun.append(future)
            if len(begun) == _AHEAD * len(self._processes):
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()

    def unordered(
        self, job: Callable[[_Task], _Result], tasks: Sequence[_Task]
    ) -> Iterator[tuple[_Task, _Result]]:
        """Yield each task with `job(task)`, as soon as the job is done; tasks begin in order.

        Raises an error that a job raised, and RegardError if a process was killed.
        """
        if not self._processes:
            yield from ((task, job(task)) for task in tasks)
            return
        begun = {self._threads.submit(self._ask, job, task): task for task in tasks}
        for future in as_completed(begun):
            yield begun[future], future.result()

    def _submitted(
        self, job: Callable[[_Task], _Result], tasks: Iterable[_Task]
    ) -> Iterator[Future[_Result]]:
        try:
            for task in tasks:
                yield self._threads.submit(self._ask, job, task)
        except RegardError as error:
            refused: Future[_Result] = Future()
            refused.set_exception(error)
            yield refused

    def _ask(self, job: Callable[[_Task], _Result], task: _Task) -> _Result:
        process = self._idle.get()
        try:
            return process.ask(job, task)
        finally:
            self._idle.put(process)


class _Process:
    """One of the worker processes; only one thread at a time may use it."""

    def __init__(self, option: str) -> None:
        self._option = option
        self._job: object = None
        try:
            self._process = started(
                "from regard.machine.workers import answer_requests; answer_requests()",
                OMP_NUM_THREADS="1",
                OPENBLAS_NUM_THREADS="1",
            )
        except OSError as error:
            raise RegardError(
                f"another process cannot be started: {error.strerror}: use fewer {option}"
            ) from None
        self.pid = self._process.pid

    def ask(self, job: Callable[[_Task], _Result], task: _Task) -> _Result:
        """Send a task, and the job if it is new; return the result, or raise the job's error.

        Raises RegardError if the process was killed.
        """
        assert self._process.stdin
        assert self._process.stdout
        try:
            new_job = (job,) if job is not self._job else ()
            pickle.dump((new_job, task), self._process.stdin, protocol=5)
            self._process.stdin.flush()
            self._job = job
            result, error = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            status = self._process.wait()
            cause = f"signal {-status}" if status < 0 else f"status {status}"
            raise RegardError(
                f"a process that shares the work was killed ({cause}), perhaps because "
                f"memory ran out: use fewer {self._option} and start again"
            ) from None
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        """Kill the process; a thread that waits for its answer gets an error."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close the pipes; call this when all threads that waited for an answer have ended."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            with suppress(OSError):
                pipe.close()


def answer_requests() -> None:
    """Answer tasks until the pipe ends or memory runs out; then end this process."""
    requests, answers = pipes()
    job: Any = None
    answer: tuple[Any, Exception | None]
    with suppress(EOFError, OSError, MemoryError):
        while True:
            new_job, task = pickle.load(requests)
            [job] = new_job or [job]
            try:
                answer = job(task), None
            except MemoryError:
                raise
            except Exception as error:
                answer = None, error
            pickle.dump(answer, answers, protocol=5)
            answers.flush()
    os._exit(1)  # sys.exit would flush standard output, whose pipe may be closed
