"""§5 Training: the loop.

What it needs from outside, the run gives: files, device, cadence. It knows neither search nor
scores: a `validate` callable is handed in.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.batches import Batch
from regard.errors import TrainingError
from regard.machine.devices import is_out_of_memory
from regard.machine.processes import ALONE, OutOfMemory, Processes
from regard.recipe import Recipe
from regard.run.directory import Run
from regard.run.sharding import Optimizer
from regard.run.state import State
from regard.schedule import learning_rate
from regard.steps import Steps, steps_for
from regard.transformer import Transformer

Validate = Callable[[Transformer], dict[str, Any]]
"""What to journal of a model, its validation `loss` at least."""


def train(run: Run, validate: Validate | None = None) -> dict[str, Tensor]:
    """Train to the last step of the run's recipe and average; returns the final fp32 weights.

    Goes on from its newest checkpoint. Of several processes the first has the weights, the
    others an empty dict. Raises Interrupted after saving where a signal asks for it, and
    TrainingError where the loss stops being a number.
    """
    recipe, training = run.recipe, run.resume_or_start()
    model, optimizer, batches, state = training
    steps = steps_for(model, optimizer, recipe, run.device, run.dtype, run.warn)
    while state.step < recipe.training.steps and not _is_over(state, recipe):
        step = state.step + 1  # steps count from 1, as in §5.3
        rate = learning_rate(step, recipe.model.d_model, recipe.training.warmup_steps)
        before = batches.state()
        some = [batch.to(run.device) for batch in batches.take(recipe.training.accumulate)]
        try:
            loss = update(steps, optimizer, some, rate, run.processes)
        except OutOfMemory:
            batches = run.cut_smaller(training, before)
            training = training._replace(batches=batches)
            continue
        state.step = step
        run.tick(state, loss.source_tokens, loss.target_tokens)
        due = run.due(state)
        if any(due):
            smoothed, plain = loss.per_token()
            stop_unless_finite(smoothed, optimizer, state.step, rate)
            if due.log:
                run.log(training, rate, smoothed, plain)
            if due.validate and validate:
                result = validate(training.whole_model())
                run.journal.write("validation", step=state.step, **result)
                state.judge(result["loss"])
            save = due.save or _is_over(state, recipe)
            if save or due.leave:
                run.save(training, extra=not save)
            if due.leave:
                run.leave(state)
    if _is_over(state, recipe):
        run.warn(f"step {state.step}: no lower loss in {state.no_better} validations: the end")
    return run.finish(state)


def _is_over(state: State, recipe: Recipe) -> bool:
    """Whether patience with validations has come to its end."""
    return 0 < recipe.training.patience <= state.no_better


class Loss(NamedTuple):
    """Losses of one step, summed over its tokens, in nats."""

    smoothed: Tensor
    plain: Tensor
    source_tokens: int
    target_tokens: int

    def per_token(self) -> tuple[float, float]:
        """(smoothed, plain) per target token."""
        return float(self.smoothed) / self.target_tokens, float(self.plain) / self.target_tokens


def update(
    steps: Steps,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    rate: float,
    processes: Processes = ALONE,
) -> Loss:
    """One optimizer step on the sum of the losses over the sum of the tokens, of all processes.

    `batches` are those of this process. Nothing here waits for a GPU: the losses stay there. Raises
    OutOfMemory, in all processes alike.
    """
    try:
        found = _collected(steps, optimizer, batches)
        processes.agree_on_memory(found is not None)
    except OutOfMemory:
        optimizer.forget()
        raise
    assert found is not None
    source_tokens, target_tokens = processes.sum(
        sum(batch.source_tokens for batch in batches),
        sum(batch.target_tokens for batch in batches),
    )
    processes.add_up(found)
    if processes.count > 1:
        optimizer.add_up(processes.add_up)
    optimizer.step(rate, target_tokens)
    smoothed, plain = found.unbind()
    return Loss(smoothed, plain, source_tokens, target_tokens)


def _collected(steps: Steps, optimizer: Optimizer, batches: Sequence[Batch]) -> Tensor | None:
    """Collect the gradient of these batches; (smoothed, plain) loss, or None without memory."""
    each = []
    try:
        for batch in batches:
            optimizer.make_way()
            each.append(steps.learn(batch))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return torch.stack(each).sum(0)


def stop_unless_finite(loss: float, optimizer: Optimizer, step: int, rate: float) -> None:
    """Raise TrainingError, with what to change, where training has diverged."""
    if not (math.isfinite(loss) and optimizer.is_finite()):
        problem = "some weights are no numbers" if math.isfinite(loss) else f"the loss is {loss}"
        raise TrainingError(
            f"step {step}: {problem}: training diverged at rate {rate:.2e}; the "
            "checkpoints are from before: raise training.warmup_steps, enlarge the batch "
            "(training.accumulate), or try training.precision=fp32"
        )
