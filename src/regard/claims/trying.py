"""Test claims: compute their parts, keep the numbers of finished parts, and judge.

All files are in the directory `out`, here called DIR:

DIR/parts/NAME-SEED.json   the numbers of a finished part, and the settings that gave them
DIR/corpus, DIR/data-*     the built-in corpus, and data prepared from it
DIR/size.json              the size of the trainings
DIR/runs/NAME-SEED         the run directory of a training
DIR/result.json            figures and verdicts of the claims that were tried last
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from regard.claims.parts import FULL, Claim, Evidence, Size
from regard.claims.tables import Outcome, result_json
from regard.claims.trainings import Trained, prepare_corpora
from regard.data.pairs import is_prepared
from regard.errors import DataError
from regard.files.whole import write_file
from regard.parts.kept import Finished, Task, do_all, finished


def try_claims(
    claims: Sequence[Claim],
    out: Path,
    seeds: Sequence[int],
    *,
    size: Size = FULL,
    jobs: int = 0,
    heard: Callable[[Finished], object] = lambda _: None,
) -> list[Outcome]:
    """Test some claims in the directory `out`; return the outcomes and write `out`/result.json.

    Parts that an earlier call finished are not done again; a training that was stopped continues.
    `jobs` processes share the work, each with one thread; if `jobs` is 0, this process does all the
    work. `heard` is called for each finished part, parts of earlier calls included. Raises
    DataError if `out` holds damaged parts, or parts with other settings, such as another size. Also
    raises DataError if `out` is prepared data, a run or a model: its result.json would be
    overwritten. Raises RegardError if a file cannot be written, and the other errors of
    `prepare_corpora` and of `do_all`, which include errors of training.
    """
    if (out / "recipe.toml").exists() or is_prepared(out):
        raise DataError("is prepared data, a run or a model: choose another --out", out)
    parts = {part.name: part for claim in claims for part in claim.parts}
    tasks = [
        Task(part.name, seed, part.settings(size), partial(part.run, seed, out, size))
        for seed in seeds
        for part in parts.values()
    ]
    done = finished(tasks, out)
    left = {task.part for task in tasks if (task.part, task.seed) not in done}
    if any(isinstance(parts[name], Trained) for name in left):
        prepare_corpora(out, size)
    evidence = Evidence(do_all(tasks, out, jobs=jobs, heard=heard), seeds)
    outcomes = [Outcome(claim, tuple(claim.judge(evidence))) for claim in claims]
    write_file(out / "result.json", json.dumps(result_json(outcomes, seeds, size), indent=1) + "\n")
    return outcomes
