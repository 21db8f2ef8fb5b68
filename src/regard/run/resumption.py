"""Continue a run from its newest checkpoint, or start it if there is no checkpoint."""

from collections.abc import Callable

import torch

from regard.data.batches import Batches
from regard.data.layouts import most_rows
from regard.data.prefetch import Prefetched
from regard.encoder_decoder import EncoderDecoder
from regard.errors import ModelError, TrainingError
from regard.machine.compiled import forget_programs
from regard.recipe import changes
from regard.run import checkpoints
from regard.run.beginning import (
    begun,
    part_in_words,
    refuse_adam_after_muon,
    refuse_changed,
    refuse_less_time,
)
from regard.run.checkpoints import Checkpoint, RandomStates
from regard.run.directory import RunDirectory
from regard.run.setup import Setup
from regard.run.sharding import Optimizer
from regard.run.state import Training, TrainingState, judged_by

Position = dict[str, int]
"""How far the data has been read, as `Batches.state` returns it."""
Restored = tuple[TrainingState, Position, RandomStates]
"""The content of a checkpoint, except weights and moments."""


class Resumption:
    """Begins or continues a run: its state, its weights and its position in the data.

    One process divides each batch into `micro_batches` parts; several processes divide a batch into
    a multiple of this number. If `micro_batches` is None, the number of parts is that of the
    checkpoint or, without a checkpoint, the least possible number.
    With `accept_changes`, the data and the validation set may have changed since the checkpoint.
    """

    def __init__(
        self,
        setup: Setup,
        directory: RunDirectory,
        warn: Callable[[str], None],
        *,
        accept_changes: bool,
        micro_batches: int | None,
    ):
        self._setup, self._directory, self._warn = setup, directory, warn
        self._accept_changes, self._micro_batches = accept_changes, micro_batches

    def resume_or_start(self) -> Training:
        """Restore the newest undamaged checkpoint, or initialise a model from the recipe's seed.

        Raises ModelError if all checkpoints are damaged, if one cannot be read now, or if the
        restored one does not fit the recipe, the tokenizer or the data. Raises TrainingError if
        there is a finished model without checkpoints, if the processes have different setups, if
        PyTorch is too old to divide a model or, without `accept_changes`, if the saved position was
        counted with other pairs or settings of the data. Raises the errors of `refuse_less_time`
        and `refuse_adam_after_muon`, and RegardError if the directory cannot be written.
        """
        setup = self._setup
        setup.refuse_differences()
        # The new model keeps its weights only if there is no checkpoint. All processes then get the
        # weights of the first process.
        first = setup.processes.rank == 0 and not checkpoints.paths(self._directory.checkpoints)
        model, optimizer = setup.model_and_optimizer(to_keep=first)
        state, position, randoms = TrainingState(), None, checkpoints.random_states()
        if found := self._found(optimizer):
            state, position, randoms = found
        seed = setup.recipe.training.seed, state.step
        checkpoints.set_random_states(randoms, setup.processes.rank, seed)
        optimizer.give(setup.processes.give)
        if self._micro_batches:
            state.parts = self._micro_batches * setup.share(1).parts
        batches = setup.batches(state.parts)
        if position:
            self._go_to(position, batches)
        self._directory.begin(setup, state.step)
        self._write_start(model, batches, state)
        return Training(model, optimizer, setup.ahead(batches), state)

    def cut_smaller(self, training: Training, position: Position) -> Training:
        """Go back to this position in the data, and divide each batch into twice as many parts.

        Each update still learns from the same pairs. Returns the training with the new batches.
        Raises TrainingError if each part is already a single row of a batch.
        """
        setup, state = self._setup, training.state
        before = setup.share(state.parts).parts
        state.parts = 2 * before
        if before >= most_rows(setup.recipe.data):
            raise TrainingError(
                f"step {state.step + 1}: not even one row of a batch fits the memory: lower "
                "data.row_length, data.max_length or the size of the model"
            )
        self._warn(
            f"step {state.step + 1}: out of memory: from now on each batch is divided "
            f"into {state.parts} parts, not {before}; updates stay the same"
        )
        self._directory.journal.write("out of memory", step=state.step, cuts=state.parts)
        if isinstance(training.batches, Prefetched):
            training.batches.close()
        forget_programs(setup.device)
        batches = setup.batches(state.parts)
        batches.restore(position)
        return training._replace(batches=setup.ahead(batches))

    def _found(self, optimizer: Optimizer) -> Restored | None:
        """Restore the newest checkpoint, if any, into the optimizer of the first process.

        The first process sends the state, the position and the random states to all processes, and
        every process returns them. Without a checkpoint, all processes return None.
        """
        newest = self._directory.newest(1)
        if not newest:
            self._directory.refuse_finished()
        mine = self._restored(newest[0], optimizer) if newest else None
        return self._setup.processes.all(mine)[0]

    def _restored(self, checkpoint: Checkpoint, optimizer: Optimizer) -> Restored:
        setup, about = self._setup, checkpoint.manifest
        own = setup.fingerprints  # checkpoints of older versions have no "validation"
        changed = [what for what, mine in own.items() if about.get(what, mine) != mine]
        refuse_changed(changed, checkpoint.path, knowingly=self._accept_changes)
        if changed:
            what = part_in_words(changed)
            self._warn(f"{checkpoint.path}: the {what} changed since this run began")
        earlier = begun(self._directory.path) or setup.recipe
        # Checkpoints of step 0 and of older versions may lack "optimizer" and "judged_by".
        learned_by = about.get("optimizer", earlier.training.optimizer)
        if checkpoint.step:  # before the first step, all moments are 0
            refuse_adam_after_muon(self._directory.path, learned_by, setup.recipe)
        try:
            randoms = checkpoints.restore(checkpoint, optimizer)
            state = TrainingState.restored(about["state"])
            judge = about.get("judged_by", judged_by(earlier.training.best))
            if changed or judge != judged_by(setup.recipe.training.best):
                state.forget_best()
            restored = state, about["batches"], randoms
        except (KeyError, TypeError, RuntimeError) as error:
            found = changes(earlier, setup.recipe)
            of_model = [str(change) for change in found if change.field.startswith("model.")]
            why = ", ".join(of_model) or str(error)
            raise ModelError(
                f"{checkpoint.path}: does not fit this recipe ({why}): choose another --out"
            ) from None
        refuse_less_time(self._directory.path, earlier, setup.recipe, state.seconds, state.ended)
        return restored

    def _go_to(self, position: Position, batches: Batches) -> None:
        try:
            batches.restore(position)
        except (KeyError, TypeError) as error:
            raise ModelError(
                f"{self._directory.checkpoints}: the newest checkpoint does not tell its place in "
                f"the data ({error!r}): choose another --out"
            ) from None
        except TrainingError as error:  # the position was saved with other pairs or settings
            if not self._accept_changes:
                raise
            self._warn(f"reading the data from its beginning: {error}")

    def _write_start(self, model: EncoderDecoder, batches: Batches, state: TrainingState) -> None:
        """Write a `start` record into the journal: the step, sizes, device and processes."""
        setup = self._setup
        self._directory.journal.write(
            "start",
            step=state.step,
            steps=setup.recipe.training.steps,
            minutes=setup.recipe.training.minutes,
            parameters=model.parameter_count,
            pairs=len(setup.pairs),
            vocabulary=setup.tokenizer.size,
            batches_per_epoch=batches.batches_per_epoch,
            device=str(setup.device),
            dtype=in_words(setup.dtype, setup.recipe.training.precision),
            threads=torch.get_num_threads(),
            processes=setup.processes.count,
            cuts=batches.share.parts,
            shares=setup.shards,
        )


def in_words(dtype: torch.dtype, precision: str) -> str:
    """The number formats of training in words, for instance "bfloat16" or "int8 and bfloat16"."""
    return f"{'int8 and ' if precision == 'int8' else ''}{str(dtype).removeprefix('torch.')}"
