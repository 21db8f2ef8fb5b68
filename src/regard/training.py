"""§5 Training: the loop.

The run provides files, clock and devices (`regard.run`), and `regard.steps` computes gradients. The
loop itself needs no search and no scores, because validation is its argument `validate`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.batches import Batch
from regard.encoder_decoder import EncoderDecoder
from regard.errors import Diverged
from regard.machine.devices import is_out_of_memory
from regard.machine.processes import ALONE, OutOfMemory, Processes
from regard.run.run import Run
from regard.run.sharding import Optimizer
from regard.run.state import Due, Training
from regard.schedule import learning_rate
from regard.steps import Steps, steps_for

Validate = Callable[[EncoderDecoder], dict[str, Any]]
"""A function that measures a model; it returns fields for the journal, such as the `loss`."""


def train(run: Run, validate: Validate | None = None) -> dict[str, Tensor]:
    """Train until the run's steps, time or patience are used up; return the averaged weights.

    Continues from the newest checkpoint, if any. The first process returns weights in fp32 (§6.1);
    other processes return {}. Raises Interrupted, after saving, at a signal; Diverged if the loss
    or a weight is not finite; RegardError if the run cannot begin, continue or write its files.
    """
    training, setup = run.resume_or_start(), run.setup
    (model, optimizer, _, state), recipe, by = training, setup.recipe, setup.recipe.training
    steps = steps_for(model, optimizer, recipe, setup.device, setup.dtype, run.warn)
    while not run.is_over(state):
        rate = learning_rate(state.step + 1, recipe.model.d_model, by.warmup_steps, by.rate)
        rate *= run.clock.cooldown.factor(state)
        position = training.batches.state()
        batches = [b.to(setup.device) for b in training.batches.take(by.accumulate)]
        try:
            wishes = partial(run.clock.wishes, state)
            loss = update(steps, optimizer, batches, rate, setup.processes, wishes)
        except OutOfMemory:  # nothing was learned: use the same pairs again, in smaller parts
            training = run.resumption.cut_smaller(training, position)
            continue
        run.clock.tick(state, loss.source_tokens, loss.target_tokens)
        due = run.clock.due(state, loss.wishes)
        if any(due):
            follow_up(run, training, due, rate, loss, validate)
    if state.gives_up(by.patience):
        run.warn(f"step {state.step}: no better validation in {state.no_better}: the end")
    return run.finish(state)


class Loss(NamedTuple):
    """Sums of a step over all processes: losses in nats, tokens, numbers from `Clock.wishes`."""

    smoothed: Tensor
    plain: Tensor
    source_tokens: int
    target_tokens: int
    wishes: list[int]

    def per_token(self) -> tuple[float, float]:
        """The (smoothed, plain) loss per target token; waits for the device."""
        return float(self.smoothed) / self.target_tokens, float(self.plain) / self.target_tokens


def update(
    steps: Steps,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    rate: float,
    processes: Processes = ALONE,
    wishes: Callable[[], list[int]] = list,
) -> Loss:
    """Make an optimizer step on the mean loss per target token, over all processes (§5.3).

    `batches` are this process's share; `wishes` is `Clock.wishes`. On a GPU, the losses stay there,
    and are not waited for. If one process lacks memory, all processes raise OutOfMemory.
    """
    try:
        losses: Tensor | None = None
        try:
            each = []
            for batch in batches:
                optimizer.make_way()
                each.append(steps.learn(batch))
            losses = torch.stack(each).sum(0)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        mine = [sum(b.source_tokens for b in batches), sum(b.target_tokens for b in batches)]
        tokens_and_wishes = processes.agree_on_memory(losses is not None, mine + wishes())
    except OutOfMemory:
        optimizer.forget()
        raise
    assert losses is not None
    source_tokens, target_tokens, *agreed = tokens_and_wishes
    processes.add_up(losses)
    if processes.count > 1:
        optimizer.add_up(processes.add_up)
    optimizer.step(rate, target_tokens)
    smoothed, plain = losses.unbind()
    return Loss(smoothed, plain, source_tokens, target_tokens, agreed)


def follow_up(
    run: Run, training: Training, due: Due, rate: float, loss: Loss, validate: Validate | None
) -> None:
    """Log, validate and save, if due. Raises Diverged and, after a signal, Interrupted."""
    state, by = training.state, run.setup.recipe.training
    smoothed, plain = loss.per_token()
    stop_unless_finite(smoothed, training.optimizer, state.step, rate)
    if due.log:
        run.clock.log(training, rate, smoothed, plain)
    if due.validate and validate:
        run.judge(state, validate(training.whole_model()))
    ends = state.gives_up(by.patience)
    save = due.save or (ends and by.averages_last)
    if save or ends or due.resume or due.leave:
        run.save(training, extra=not save)
    if due.leave:
        run.leave_if_asked()


def stop_unless_finite(loss: float, optimizer: Optimizer, step: int, rate: float) -> None:
    """Raise Diverged, with advice, if the loss or a weight is not finite."""
    if not (math.isfinite(loss) and optimizer.is_finite()):
        problem = "some weights are not numbers" if math.isfinite(loss) else f"the loss is {loss}"
        raise Diverged(
            f"step {step}: {problem}: training diverged at rate {rate:.2e}; the "
            "checkpoints are from before: raise training.warmup_steps, enlarge the batch "
            "(training.accumulate), or try training.precision=fp32"
        )
