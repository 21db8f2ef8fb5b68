"""A complete training: the run, its validations, the tuning of the search, a check of the disk."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from regard.amounts import BYTES, amount
from regard.data.layouts import refuse_more_parts
from regard.machine.interrupt import Interrupt, Interrupted
from regard.machine.processes import ALONE, Processes
from regard.measure.outline import Disk, Outline, outline
from regard.measure.tuning import tune_run
from regard.measure.validation import validator
from regard.recipe import Recipe
from regard.run.finetuning import begin_from_model
from regard.run.journal import RecordListener
from regard.run.run import Run
from regard.training import train


def train_prepared(
    recipe: Recipe,
    data: Path,
    out: Path,
    *,
    listeners: tuple[RecordListener, ...] = (),
    warn: Callable[[str], None] = lambda _: None,
    announce: Callable[[Outline], object] = lambda _: None,
    interrupt: Interrupt | None = None,
    accept_changes: bool = False,
    processes: Processes = ALONE,
    micro_batches: int | None = None,
    shard: bool = False,
    began: float | None = None,
) -> None:
    """Train on prepared data until the run is over, and write the model to `out`.

    `announce` is called once, before the first step, with the number of parameters and the memory
    and disk space that the run takes. The other arguments are those of `Run`. With several
    `processes`, each must call this function, and only the first writes, warns and announces.
    Raises the errors of `validator`, `Run`, `begin_from_model`, `train` and `tune_run`;
    TrainingError if a batch cannot be divided into `micro_batches`; and Interrupted if `interrupt`
    records a signal, before or after the last step. The newest step is saved before this error is
    raised.
    """
    refuse_more_parts(1 if micro_batches is None else micro_batches, recipe.data)
    validate = validator(data, recipe, processes)
    run = Run(
        out,
        recipe,
        data,
        listeners=listeners,
        interrupt=interrupt,
        warn=warn if processes.first else lambda _: None,
        accept_changes=accept_changes,
        processes=processes,
        micro_batches=micro_batches,
        shard=shard,
        began=began,
    )
    try:
        if processes.first:
            begin_from_model(run)
            found = outline(run.setup, run.directory.path)
            announce(found)
            if problem := too_little_disk(out, found.disk):
                warn(problem)
        train(run, validate)
        processes.first_does(partial(_tune, run))
        run.leave_if_asked()  # raise after a signal, so that the caller begins no other run
    finally:
        run.close()


def _tune(run: Run) -> None:
    """Tune the search of a run.

    After a signal, return early, so that the other processes do not wait any longer.
    """
    with suppress(Interrupted):
        tune_run(run)


def too_little_disk(out: Path, disk: Disk) -> str | None:
    """A warning if the disk has too little space for the run in `out`; None if it has enough."""
    if disk.free >= disk.needed:
        return None
    first = " and not even one checkpoint has room" * (disk.free < disk.checkpoint)
    return (
        f"{out}: too little disk: {amount(disk.needed, BYTES)} will be needed, "
        f"{amount(disk.free, BYTES)} are free{first}: make room, or lower training.keep"
    )
