"""The run that `training.train` uses: a run directory, a clock and a resumption together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.machine.compiled import forget_programs
from regard.machine.interrupt import Interrupt, Interrupted
from regard.machine.processes import ALONE, Processes
from regard.recipe import Recipe
from regard.run import checkpoints
from regard.run.beginning import refuse_another_recipe
from regard.run.clock import Clock
from regard.run.directory import RunDirectory
from regard.run.journal import RecordListener
from regard.run.resumption import Resumption
from regard.run.setup import Setup
from regard.run.state import Training, TrainingState, judged_by


class Run:
    """Training on prepared data, in a run directory.

    The directory keeps all that is needed to continue the run, except the data. Opening a run locks
    the directory, so that only one run at a time trains in it. A run that is refused has written
    neither its recipe nor its journal.
    """

    def __init__(
        self,
        directory: Path,
        recipe: Recipe,
        data: Path,
        listeners: tuple[RecordListener, ...] = (),
        interrupt: Interrupt | None = None,
        warn: Callable[[str], None] = lambda message: None,
        accept_changes: bool = False,
        processes: Processes = ALONE,
        micro_batches: int | None = None,
        shard: bool = False,
        began: float | None = None,
        cooldown: tuple[int, int] | None = None,
    ):
        """Open a run.

            listeners       are called with each record of the journal
            interrupt       tells whether a signal asks the run to save and exit
            warn            is called with a sentence about anything that may not be intended
            accept_changes  continue although the recipe or the data has changed
            processes       the processes that train together; only the first one writes
            micro_batches   the number of parts that one process divides each batch into; several
                            processes divide a batch into a multiple of this number; None keeps
                            the number of parts in the checkpoint, if there is one
            shard           divide weights and moments among the processes
            began           the value of `time.monotonic` at which `training.minutes` start; None
                            means now
            cooldown        for a run that repeats a part of another run, and whose recipe has no
                            cooldown: the last step before the other run's cooldown, and the last
                            step of that cooldown

        Raises the errors of `Setup.open` and, without `accept_changes`, of `refuse_another_recipe`.
        Raises InUse if another process trains in the directory, and RegardError if the directory
        cannot be written.
        """
        if not accept_changes:
            refuse_another_recipe(directory, recipe)
        self.warn = warn
        self.setup = Setup.open(recipe, data, processes, shard=shard)
        if shard and self.setup.shards == 1:
            warn("--shard needs several processes of torchrun: this one keeps the whole model")
        self.directory = RunDirectory(directory, listeners, warn, writes=processes.first)
        self.journal = self.directory.journal
        self.clock = Clock(self.setup, self.journal, interrupt or Interrupt(), began, cooldown)
        self._state = TrainingState()
        self.resumption = Resumption(
            self.setup,
            self.directory,
            warn,
            accept_changes=accept_changes,
            micro_batches=micro_batches,
        )

    def close(self) -> None:
        """Unlock the directory; deleting this object unlocks it, too."""
        self.directory.close()

    def resume_or_start(self) -> Training:
        """Restore the newest undamaged checkpoint, or initialise a new model; start the clock.

        Raises the errors of `Resumption.resume_or_start`.
        """
        training = self.resumption.resume_or_start()
        self._state = training.state
        self.clock.start(training.state)
        return training

    def is_over(self, state: TrainingState) -> bool:
        """Whether the run ends, because of its last step, its time limit or `training.patience`."""
        recipe = self.setup.recipe.training
        return state.step >= recipe.steps or self.clock.over or state.gives_up(recipe.patience)

    def judge(self, state: TrainingState, validation: dict[str, Any]) -> None:
        """Write a validation into the journal, and compare it with the best one so far."""
        self.journal.write("validation", step=state.step, **validation)
        state.judge(validation, self.setup.recipe.training.best)

    def save(self, training: Training, *, extra: bool = False) -> None:
        """Write a checkpoint, and remove the earlier ones that the recipe does not keep.

        An `extra` checkpoint serves only to continue from, and the next save removes it. The final
        model is the average of the other checkpoints, if there are enough. All processes must call
        this together. Raises RegardError if the checkpoint cannot be written.
        """
        setup, state, optimizer = self.setup, training.state, training.optimizer
        self.clock.count_time(state)
        about: dict[str, Any] = {
            "step": state.step,
            "extra": extra,
            "state": state.saved(),
            "judged_by": judged_by(setup.recipe.training.best),
            "optimizer": setup.recipe.training.optimizer,
            "batches": training.batches.state(),
            **self.directory.facts(setup),
        }
        randoms = setup.processes.all(checkpoints.random_states(setup.processes.rank))
        weights, moments = optimizer.named_weights(), optimizer.state()
        self.directory.save(weights, moments, about, setup.recipe.training, randoms)
        self.clock.saved(extra=extra)

    def leave_if_asked(self) -> None:
        """Raise Interrupted if a signal has come; the caller must have saved the newest step."""
        if (signum := self.clock.interrupt.signum) is not None:
            raise Interrupted(signum, self._state.step)

    def finish(self, state: TrainingState) -> dict[str, Tensor]:
        """Make the final model, the average of checkpoints; return its weights.

        `RunDirectory.finish` chooses the checkpoints. Only the first process makes the model; the
        other processes return an empty dict. Raises the errors of `RunDirectory.finish`.
        """
        self.clock.count_time(state)
        forget_programs(self.setup.device)  # leaves more memory for averaging and tuning
        return self.directory.finish(self.setup, state)
