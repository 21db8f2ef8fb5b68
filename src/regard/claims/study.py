"""Try claims: do their parts, keep what is finished, judge.

DIR/parts/NAME-SEED.json   the numbers of a finished part, and the settings that gave them
DIR/corpus, DIR/data-*     the built-in corpus, prepared
DIR/size.json              the size of the trainings
DIR/runs/NAME-SEED         the run directory of a training
DIR/result.json            figures and verdicts of the claims that were tried last
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

from regard.claims.parts import FULL, Claim, Evidence, Measured, Part, Size
from regard.claims.registry import PARTS
from regard.claims.tables import Outcome, result_json
from regard.claims.trainings import Trained, prepare_corpora
from regard.errors import DataError
from regard.files.whole import write_file
from regard.machine.workers import Workers


class Finished(NamedTuple):
    """A part that is finished, for one seed."""

    part: str
    seed: int
    numbers: Measured
    number: int
    """How many parts are finished now."""
    total: int
    """How many there are, over all seeds."""


def try_claims(
    claims: Sequence[Claim],
    out: Path,
    seeds: Sequence[int],
    *,
    size: Size = FULL,
    jobs: int = 0,
    heard: Callable[[Finished], object] = lambda _: None,
) -> list[Outcome]:
    """Try some claims in the directory `out`, and write `out`/result.json.

    Parts that an earlier call finished are not done again; a training that was stopped continues.
    `jobs` processes share the work, each with one thread; 0 means this process. Raises DataError if
    `out` holds parts of another size, and what training raises.
    """
    parts = {part.name: part for claim in claims for part in claim.parts}
    tasks = [(part, seed) for seed in seeds for part in parts.values()]
    numbers = _all_kept(out, tasks, size)
    for i, ((name, seed), kept) in enumerate(numbers.items(), 1):
        heard(Finished(name, seed, kept, i, len(tasks)))
    todo = [(part, seed) for part, seed in tasks if (part.name, seed) not in numbers]
    if any(isinstance(part, Trained) for part, _ in todo):
        prepare_corpora(out, size)
    with Workers(min(jobs, len(todo))) as workers:
        names = [(part.name, seed) for part, seed in todo]
        done = workers.map(_Job(out, size, os.getpid()), names)
        for (name, seed), new in zip(names, done, strict=True):
            numbers[name, seed] = new
            heard(Finished(name, seed, new, len(numbers), len(tasks)))
    outcomes = judged(claims, Evidence(numbers, seeds))
    write_file(out / "result.json", json.dumps(result_json(outcomes, seeds, size), indent=1) + "\n")
    return outcomes


def judged(claims: Sequence[Claim], evidence: Evidence) -> list[Outcome]:
    """The outcome of each claim by the numbers of its parts."""
    return [Outcome(claim, tuple(claim.judge(evidence))) for claim in claims]


@dataclass
class _Job:
    """Does a part and keeps its numbers; in a worker process, it ends with the process `parent`."""

    out: Path
    size: Size
    parent: int
    watching: bool = False

    def __call__(self, task: tuple[str, int]) -> Measured:
        if os.getpid() != self.parent and not self.watching:
            self.watching = True
            Thread(target=_end_with, args=[self.parent], daemon=True).start()
        name, seed = task
        part = PARTS[name]
        numbers = part.run(seed, self.out, self.size)
        kept = {"settings": part.settings(self.size), "numbers": numbers}
        path = _path(self.out, name, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(kept, indent=1) + "\n")
        return numbers


def _end_with(parent: int) -> None:
    """End this process soon after its parent: a training would go on and hold its directory."""
    while os.getppid() == parent:
        sleep(0.5)
    os._exit(1)


def _path(out: Path, name: str, seed: int) -> Path:
    return out / "parts" / f"{name}-{seed}.json"


def _all_kept(
    out: Path, tasks: Sequence[tuple[Part, int]], size: Size
) -> dict[tuple[str, int], Measured]:
    """The numbers of those tasks that are finished, by part and seed."""
    found = {(part.name, seed): _kept(out, part, seed, size) for part, seed in tasks}
    return {task: kept for task, kept in found.items() if kept is not None}


def _kept(out: Path, part: Part, seed: int, size: Size) -> Measured | None:
    """The numbers of a finished part; None if it is not finished. Raises DataError."""
    path = _path(out, part.name, seed)
    if not path.exists():
        return None
    try:
        kept: dict[str, Any] = json.loads(path.read_text("utf-8"))
        settings, numbers = kept["settings"], dict(kept["numbers"])
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError("cannot be read as a finished part: remove it", path) from None
    if settings != part.settings(size):
        raise DataError(
            "was measured with other settings (--steps, --pairs, or another version): choose "
            "another --out",
            path,
        )
    return numbers
