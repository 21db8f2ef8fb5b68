"""Do each part of an experiment once for each seed, and keep its numbers on the disk.

OUT/parts/NAME-SEED.json   the numbers of a finished part, and the settings that gave them

A part is one piece of work that gives numbers, such as the training of one model. Any number of
processes may do the parts of one directory. A process locks the part that it does. The lock ends
with the process: if the process is killed, another process can do the part.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, NamedTuple

from regard.errors import DataError
from regard.files.locks import locked
from regard.files.whole import write_file
from regard.machine.workers import Workers

Measured = dict[str, float]
"""The numbers that a part of an experiment gives, by name."""
Figures = dict[tuple[str, int], Measured]
"""The numbers of the finished parts of an experiment, by name and seed."""
WAIT = 2.0
"""If none of the parts that are left can be done now, because other processes do them or because
they need an unfinished part, `do_all` waits for this many seconds, then tries them again."""


@dataclass(frozen=True)
class Task:
    """One part of an experiment, to be done for one seed, in this process or in another one."""

    part: str
    seed: int
    settings: str
    """Everything that the numbers depend on, except the seed."""
    work: Callable[[], Measured | None]
    """A function that does the part and returns its numbers. It returns None if another part must
    be finished first."""
    cost: float = 0.0
    """The amount of work, in any unit: tasks with more work are begun first."""


class Finished(NamedTuple):
    """A part of an experiment that is finished for one seed."""

    part: str
    seed: int
    numbers: Measured
    number: int
    """How many finished parts have been reported so far, over all seeds, this part included."""
    total: int
    """How many parts there are, over all seeds."""


def do_all(
    tasks: Sequence[Task],
    out: Path,
    *,
    jobs: int = 0,
    heard: Callable[[Finished], object] = lambda _: None,
    after: Callable[[], object] = int,
) -> Figures:
    """Do the tasks that are left, and return the numbers of all tasks.

    A task is one part of an experiment, for one seed. A task is left if its numbers are not yet in
    the directory `out`. `jobs` processes share the work, each with one thread; 0 means this
    process. Other processes may call `do_all` for the same directory: each part is done by one
    process only, and every call returns when all parts are finished. `heard` is called once for
    each finished part, in this process. `after` is called once for each part that this call does,
    in the process that did the part. Raises DataError if `out` holds damaged parts or parts with
    other settings, and RegardError if a process cannot be started or was killed, or if `out` cannot
    be written. Errors of the tasks are raised, too.
    """
    found = finished(tasks, out)
    for i, ((part, seed), numbers) in enumerate(found.items(), 1):
        heard(Finished(part, seed, numbers, i, len(tasks)))
    left = [task for task in tasks if (task.part, task.seed) not in found]
    left.sort(key=lambda task: -task.cost)
    job = _Job(out, os.getpid(), after)
    with Workers(min(jobs, len(left)), "--jobs") as workers:
        while todo := left:
            for task, new in workers.unordered(job, todo):
                if new is not None:
                    found[task.part, task.seed] = new
                    heard(Finished(task.part, task.seed, new, len(found), len(tasks)))
            left = [task for task in todo if (task.part, task.seed) not in found]
            if len(left) == len(todo):
                sleep(WAIT)
    return found


def finished(tasks: Sequence[Task], out: Path) -> Figures:
    """The numbers of the finished tasks, in the order of `tasks`.

    Raises DataError if a finished part cannot be read, or has other settings than its task.
    """
    found = {(task.part, task.seed): _kept(out, task) for task in tasks}
    return {task: kept for task, kept in found.items() if kept is not None}


@dataclass
class _Job:
    """A function that does a task, and keeps the numbers of the task on the disk.

    A worker process that does tasks ends itself soon after the process `parent` has ended.
    """

    out: Path
    parent: int
    after: Callable[[], object]
    watching: bool = False

    def __call__(self, task: Task) -> Measured | None:
        """Return the numbers; None if the task cannot be done yet, or another process does it."""
        if os.getpid() != self.parent and not self.watching:
            self.watching = True
            Thread(target=_end_with, args=[self.parent], daemon=True).start()
        path = _path(self.out, task.part, task.seed)
        with locked(path.with_name(f".{path.stem}.lock"), wait=False) as mine:
            if not mine:
                return None
            kept = _kept(self.out, task)
            if kept is not None:
                return kept
            numbers = task.work()
            if numbers is not None:
                content = {"settings": task.settings, "numbers": numbers}
                write_file(path, json.dumps(content, indent=1) + "\n")
        if numbers is not None:
            self.after()
        return numbers


def _end_with(parent: int) -> None:
    """End this process soon after its parent has ended, so that its task does not stay locked."""
    while os.getppid() == parent:
        sleep(0.5)
    os._exit(1)


def numbers_of(out: Path, part: str, seed: int) -> Measured | None:
    """The numbers of a part of an experiment, whatever its settings were; None if unfinished.

    Raises DataError if the file of the part is damaged or cannot be read.
    """
    read = _read(_path(out, part, seed))
    return read and read[1]


def _path(out: Path, part: str, seed: int) -> Path:
    return out / "parts" / f"{part}-{seed}.json"


def _read(path: Path) -> tuple[str, Measured] | None:
    """The settings and the numbers in the file of a finished part; None if there is no such file.

    Raises DataError if the file is damaged or cannot be read.
    """
    if not path.exists():
        return None
    try:
        kept: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return kept["settings"], dict(kept["numbers"])
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError("cannot be read as a finished part: remove it", path) from None


def _kept(out: Path, task: Task) -> Measured | None:
    """The numbers of a task; None if it is not finished.

    Raises DataError if the file of the part is damaged, or has other settings than the task.
    """
    path = _path(out, task.part, task.seed)
    read = _read(path)
    if read and read[0] != task.settings:
        raise DataError(
            "was measured with other settings (options, or another version): choose another --out",
            path,
        )
    return read and read[1]
