"""§5 Training: the loop.

What it needs from outside, the run gives: files, device, cadence. It knows neither search nor
scores: a `validate` callable is handed in.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.arithmetic.cross_entropy import smoothed_cross_entropy
from regard.arithmetic.device import on_cpu
from regard.arithmetic.dropout import masks_from
from regard.arithmetic.int8 import int8_products
from regard.arithmetic.one_core import can_use_loops, loops
from regard.data.batches import Batch
from regard.errors import TrainingError
from regard.machine.compiled import compiled
from regard.machine.devices import is_out_of_memory
from regard.machine.processes import ALONE, OutOfMemory, Processes
from regard.machine.threads import side_by_side
from regard.recipe import Recipe
from regard.run.directory import Run
from regard.run.sharding import BatchLoss, Optimizer, ShardedAdam
from regard.run.state import State
from regard.schedule import learning_rate
from regard.transformer import Transformer

Validate = Callable[[Transformer], dict[str, Any]]
"""What to journal of a model, its validation `loss` at least."""
MUCH = 10**10
"""Slots of a batch times weights of the model from which, on a CPU, its halves are learned from
side by side, and by loops: some 0.1 s of work. With less they wait for each other's Python."""


def train(run: Run, validate: Validate | None = None) -> dict[str, Tensor]:
    """Train to the last step of the run's recipe and average; returns the final fp32 weights.

    Goes on from its newest checkpoint. Of several processes the first has the weights, the
    others an empty dict. Raises Interrupted after saving where a signal asks for it, and
    TrainingError where the loss stops being a number.
    """
    recipe, training = run.recipe, run.resume_or_start()
    model, optimizer, batches, state = training
    losses = losses_on(run.device, model, recipe, run.warn, optimizer)
    while state.step < recipe.training.steps and not _is_over(state, recipe):
        step = state.step + 1  # steps count from 1, as in §5.3
        rate = learning_rate(step, recipe.model.d_model, recipe.training.warmup_steps)
        before = batches.state()
        some = [batch.to(run.device) for batch in batches.take(recipe.training.accumulate)]
        smoothing = recipe.training.label_smoothing
        try:
            loss = update(model, optimizer, some, rate, smoothing, losses, run.processes)
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
    model: Transformer,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    rate: float,
    smoothing: float,
    losses: BatchLoss | None = None,
    processes: Processes = ALONE,
) -> Loss:
    """One optimizer step on the sum of the losses over the sum of the tokens, of all processes.

    `batches` are this one's, `losses` computes what `batch_loss` does. Nothing here waits for a
    GPU: the losses stay there. Raises OutOfMemory, in all processes alike.
    """
    try:
        found = _collected(model, optimizer, batches, smoothing, losses or batch_loss)
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


def _collected(
    model: Transformer,
    optimizer: Optimizer,
    batches: Sequence[Batch],
    smoothing: float,
    losses: BatchLoss,
) -> Tensor | None:
    """Collect the gradient of these batches; (smoothed, plain) loss, or None without memory."""
    each = []
    try:
        for batch in batches:
            much = _is_much(model, batch)
            # a compiled step is one program, and one of divided weights one exchange after another
            halves = much and losses in (batch_loss, int8_loss) and _has_halves(batch)
            learn = _learned_by_halves if halves else _learned
            optimizer.make_way()
            each.append(learn(model, batch, smoothing, losses, much))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return torch.stack(each).sum(0)


def _learned(
    model: Transformer, batch: Batch, smoothing: float, losses: BatchLoss, much: bool
) -> Float[Tensor, "2"]:
    """(smoothed, plain) loss of a batch, whose gradient is added to the parameters' own."""
    with loops(much):
        smoothed, plain = losses(model, batch, smoothing)
        smoothed.backward()
    return torch.stack([smoothed.detach(), plain])


def _learned_by_halves(
    model: Transformer, batch: Batch, smoothing: float, losses: BatchLoss, much: bool
) -> Float[Tensor, "2"]:
    """The same, a half of the rows on each half of the cores: while one waits for the memory, the
    other multiplies.

    There are two, because a sum of two does not depend on which of them comes first.
    """
    if torch.get_num_threads() == 2:
        can_use_loops()  # now, and not in both at once
    seeds = torch.randint(2**62, (2,)).tolist()

    def learned(half: tuple[Batch, int]) -> Tensor:
        rows, seed = half
        with masks_from(seed):
            return _learned(model, rows, smoothing, losses, much)

    first, second = side_by_side(learned, list(zip(batch.halves(), seeds, strict=True)), 2)
    return first + second


def _has_halves(batch: Batch) -> bool:
    return torch.get_num_threads() % 2 == 0 and len(batch.labels) > 1


def _is_much(model: Transformer, batch: Batch) -> bool:
    """Whether what pays on a CPU, in long steps alone, is to be done."""
    if not on_cpu(batch.labels):
        return False
    return batch.slots * sum(weight.numel() for weight in model.parameters()) >= MUCH


def batch_loss(model: Transformer, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
    """(smoothed, plain) loss summed over the batch's target tokens; logits are never kept."""
    states = model.decode(batch.target, model.encode(batch.source), batch.source)
    return smoothed_cross_entropy(
        states.flatten(0, 1), model.embedding.tokens.weight, batch.labels.flatten(), smoothing
    )


def int8_loss(model: Transformer, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
    """The same with products of 8 bits: precision = "int8"."""
    with int8_products():
        return batch_loss(model, batch, smoothing)


def losses_on(
    device: torch.device,
    model: Transformer,
    recipe: Recipe,
    warn: Callable[[str], None],
    optimizer: Optimizer | None = None,
) -> BatchLoss:
    """`batch_loss` as training calls it: in int8, which a CPU alone has, if the recipe says so; and
    compiled on a GPU where all batches have one shape.

    TORCH_COMPILE_DISABLE=1 in the environment leaves it as it is, and so do weights that have to be
    gathered on the way.
    """
    plain = int8_loss if recipe.training.precision == "int8" else batch_loss
    if isinstance(optimizer, ShardedAdam):
        return optimizer.losses(plain)
    if device.type == "cpu" or recipe.data.layout == "grouped":
        return plain
    model.embedding.table(recipe.data.row_length)  # made now, not in the midst of what is compiled
    return compiled(batch_loss, warn)


def stop_unless_finite(loss: float, optimizer: Optimizer, step: int, rate: float) -> None:
    """Raise TrainingError, with what to change, where training has diverged."""
    if not (math.isfinite(loss) and optimizer.is_finite()):
        problem = "some weights are no numbers" if math.isfinite(loss) else f"the loss is {loss}"
        raise TrainingError(
            f"step {step}: {problem}: training diverged at rate {rate:.2e}; the "
            "checkpoints are from before: raise training.warmup_steps, enlarge the batch "
            "(training.accumulate), or try training.precision=fp32"
        )
