"""§5.1 What is learned from a batch: the gradient of its smoothed loss (§5.4).

`steps_for` chooses once, when a run starts, how this is computed on the machine at hand.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from regard.arithmetic.cross_entropy import smoothed_cross_entropy
from regard.arithmetic.device import on_cpu
from regard.arithmetic.dropout import masks_from
from regard.arithmetic.int8 import int8_products
from regard.arithmetic.one_core import can_use_loops, loops
from regard.data.batches import Batch
from regard.machine.compiled import compiled
from regard.machine.threads import side_by_side
from regard.recipe import Recipe
from regard.run.sharding import BatchLoss, Optimizer, ShardedAdam
from regard.transformer import Transformer

MUCH = 10**10
"""Slots of a batch times weights of the model from which, on a CPU, its halves are learned from
side by side, and by loops: some 0.1 s of work. With less they wait for each other's Python."""


class Steps(Protocol):
    """How a batch is learned from."""

    def learn(self, batch: Batch) -> Float[Tensor, "2"]:
        """Add the gradient of the smoothed loss of a batch to the gradients of the parameters.

        Returns the (smoothed, plain) loss in nats, summed over the target tokens of the batch.
        """


def steps_for(
    model: Transformer,
    optimizer: Optimizer,
    recipe: Recipe,
    device: torch.device,
    warn: Callable[[str], None],
) -> Steps:
    """Choose how the batches of a run are learned from, on this device."""
    losses = losses_on(device, model, recipe, warn, optimizer)
    return _Present(model, recipe.training.label_smoothing, losses)


class _Present:
    def __init__(self, model: Transformer, smoothing: float, losses: BatchLoss):
        self._model, self._smoothing, self._losses = model, smoothing, losses

    def learn(self, batch: Batch) -> Float[Tensor, "2"]:
        much = _is_much(self._model, batch)
        # a compiled step is one program, and one of divided weights one exchange after another
        halves = much and self._losses in (batch_loss, int8_loss) and _has_halves(batch)
        learn = _learned_by_halves if halves else _learned
        return learn(self._model, batch, self._smoothing, self._losses, much)


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
