"""Make the paper's tables in a directory that any number of processes may share.

DIR/corpus, DIR/data          text, and data prepared from it
DIR/runs/ROW-SEED             the run directory of a row that is trained with a seed
DIR/parts/PART-SEED.json      the figures of a finished part, such as a trained row (`parts.kept`)
DIR/table3.md .json .svg      a table, written anew after each part
DIR/index.html                a page with all tables

Some tables and some scales write more files, for example the trees of Table 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import time

from regard.parts.kept import Finished, do_all
from regard.reproduce.registry import EXPERIMENTS
from regard.reproduce.rows import state_of
from regard.reproduce.tables import Experiment, GrowingTable, Study, all_tasks, write_tables

RECENT = 60.0
"""A run is taken to be in training if its journal has changed in the last RECENT seconds."""


def reproduce_tables(
    study: Study,
    experiments: Sequence[Experiment],
    *,
    jobs: int = 0,
    heard: Callable[[Finished], object] = lambda _: None,
) -> list[GrowingTable]:
    """Make the tables and return them; rows that an earlier call finished are not trained again.

    The page index.html also shows the other tables that the directory holds, with the rows that are
    finished. `jobs` processes share the work, each with one thread; 0 means this process. `heard`
    is called with each finished task, tasks of earlier calls included. Raises DataError if the
    directory was begun at another scale, or if it holds results that are damaged or were measured
    with other settings; RegardError if a file cannot be written, or if a process cannot be started
    or was killed. Errors of preparing data and of training are raised, too. A row whose training
    diverges counts as finished.
    """
    for one in experiments:
        one.prepare(study)
    write = partial(write_tables, study, experiments, tuple(EXPERIMENTS.values()))
    write()
    do_all(all_tasks(study, experiments), study.out, jobs=jobs, heard=heard, after=write)
    return write()[: len(experiments)]


def rows_in_training(study: Study, experiments: Sequence[Experiment]) -> list[str]:
    """A text for each run that is in training now: row, seed and progress; [] if there is none."""
    journals = sorted((study.out / "runs").glob("*/journal.jsonl"))
    recent = [path for path in journals if time() - path.stat().st_mtime < RECENT]
    # At scale small, `recipes` below chooses the recipe of base if it is not chosen yet. As long as
    # no run is in training, another thread may be choosing it, and it should not be chosen twice.
    # So `recipes` is called only if a run is in training.
    if not recent:
        return []
    recipes = {n: r for one in experiments for n, r in one.recipes(study).items()}
    told = []
    for journal in recent:
        name, _, seed = journal.parent.name.rpartition("-")
        # The seed need not be in `study.seeds`: ensembles and teachers may need other seeds.
        if name in recipes and seed.isdigit():
            steps = recipes[name].training.steps
            told.append(f"{name}, {state_of(study.out, name, {int(seed): None}, steps)}")
    return told
