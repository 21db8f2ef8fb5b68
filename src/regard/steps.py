"""§5.4 Learning from a batch: the gradient of its smoothed loss.

When a run starts, `steps_for` chooses the class that computes this gradient: `Compiled`; or
`BySize`, which uses `Whole` or `Sharded`, and possibly `Halves` for large batches. In this module,
"an arithmetic" means an implementation of the paper's equations (`regard.equations`).
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from regard.arithmetic.choose import ForTraining, for_training
from regard.arithmetic.cpu import Cpu
from regard.data.batches import Batch
from regard.encoder_decoder import EncoderDecoder
from regard.equations import Arithmetic
from regard.errors import RegardError, TrainingError
from regard.machine.compiled import compiled, forget_programs, is_turned_off
from regard.machine.devices import is_out_of_memory
from regard.machine.threads import side_by_side
from regard.recipe import Recipe, TrainingRecipe
from regard.run.sharding import BatchLoss, Optimizer, ShardedAdam


class Steps(Protocol):
    """The interface of the classes below, which compute the gradients of batches."""

    def learn(self, batch: Batch) -> Float[Tensor, "2"]:
        """Add the gradient of the smoothed loss of a batch to the gradients of the parameters.

        Returns the (smoothed, plain) loss in nats, summed over the target tokens of the batch.
        """


def steps_for(
    model: EncoderDecoder,
    optimizer: Optimizer,
    recipe: Recipe,
    device: torch.device,
    dtype: torch.dtype,
    warn: Callable[[str], None],
) -> Steps:
    """Choose the `Steps` by which a run learns from its batches, in the precision `dtype`.

    Raises RecipeError if this machine cannot compute by the recipe's `training.arithmetic`, or
    cannot train in the recipe's `training.precision`. `warn` is called if a step cannot be
    compiled. TORCH_COMPILE_DISABLE=1 in the environment turns compilation off.
    """
    chosen = for_training(recipe.training, device, dtype, torch.get_num_threads())
    smoothing, loss = recipe.training.label_smoothing, loss_for(recipe.training)
    model.compute_by(chosen.whole)
    if isinstance(optimizer, ShardedAdam):
        return BySize(Sharded(model, smoothing, optimizer, loss), chosen, can_halve=False)
    if chosen.compiled and recipe.data.layout == "packed" and not is_turned_off():
        # The tables of positional encodings must exist before the program is traced.
        model.make_tables(recipe.data.row_length)
        return Compiled(model, smoothing, chosen.compiled(), warn, loss)
    return BySize(Whole(model, smoothing, loss), chosen, can_halve=True)


def loss_for(recipe: TrainingRecipe) -> BatchLoss:
    """The function that computes the loss: `batch_loss` with the recipe's `consistency`."""
    if recipe.consistency:
        return partial(batch_loss, consistency=recipe.consistency)
    return batch_loss


def batch_loss(
    model: EncoderDecoder, batch: Batch, smoothing: float, consistency: float = 0.0
) -> tuple[Tensor, Tensor]:
    """The (smoothed, plain) loss in nats, summed over the batch's target tokens (§5.4).

    If `consistency` is not 0, the model computes two forward passes at once, and the smoothed loss
    is that of `regard.loss.consistency_loss` with the weight `consistency`.
    """
    source, target = batch.source, batch.target
    if consistency:
        source, target = source.twice(), target.twice()
    states = model.decode(target, model.encode(source), source)
    return model.by.cross_entropy(
        *model.factors(states.flatten(0, 1)), batch.labels.flatten(), smoothing, consistency
    )


def add_gradient(smoothed: Tensor, plain: Tensor) -> Float[Tensor, "2"]:
    """Add the gradient of `smoothed` to the parameters' gradients; return (smoothed, plain)."""
    smoothed.backward()
    return torch.stack([smoothed.detach(), plain])


class Whole:
    """Learns from all rows of a batch at once."""

    def __init__(self, model: EncoderDecoder, smoothing: float, loss: BatchLoss | None = None):
        self.model, self.smoothing, self.loss = model, smoothing, loss or batch_loss

    def learn(self, batch: Batch) -> Float[Tensor, "2"]:
        """Add the gradient of the batch; see `Steps`."""
        return add_gradient(*self.loss(self.model, batch, self.smoothing))


class Compiled(Whole):
    """Learns on a GPU by one program, which is compiled from `loss` when the first batch comes.

    If the program or its backward pass cannot be compiled or captured in CUDA graphs, `warn` is
    called with the reason. A second program, without graphs, then learns from the batch. If this
    program fails, too, `loss` is called without being compiled. Only the first program computes by
    `arithmetic`. If the first program fails, the model computes by its earlier arithmetic again.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        smoothing: float,
        arithmetic: Arithmetic,
        warn: Callable[[str], None],
        loss: BatchLoss | None = None,
    ):
        super().__init__(model, smoothing, loss)
        forget_programs(model.output_matrix.weight.device)
        self._warn, self._before = warn, model.by
        self._tables = [(its, its.positions) for its in {model.embedding, model.target_side}]
        self._next = [
            ("compiled without CUDA graphs", compiled(self.loss)),
            ("not compiled", self.loss),
        ]
        self._program = compiled(self.loss, graphs=True)
        model.compute_by(arithmetic)

    def learn(self, batch: Batch) -> Float[Tensor, "2"]:
        """Add the gradient of the batch; see `Steps`."""
        # A search may have replaced a table of positional encodings by a longer table, for which
        # the program would be compiled again: put the original table back.
        for embedding, positions in self._tables:
            embedding.positions = positions
        try:
            return self._add_gradient(*self._program(self.model, batch, self.smoothing))
        except Exception as error:  # the compiler failed; nothing has been added to the gradient
            if isinstance(error, RegardError) or is_out_of_memory(error) or not self._next:
                raise
            name, self._program = self._next.pop(0)
            reason = str(error).strip().split("\n")[0] or type(error).__name__
        self._warn(f"the step is {name}, and so is slower: {reason}")
        self.model.compute_by(self._before)
        return self.learn(batch)

    def _add_gradient(self, smoothed: Tensor, plain: Tensor) -> Float[Tensor, "2"]:
        """Add the gradient of `smoothed`, with fewer kernels than `add_gradient`.

        Returns (smoothed, plain). Nothing is added if the backward pass raises an exception.
        """
        learned = [weight for weight in self.model.parameters() if weight.requires_grad]
        found = torch.autograd.grad(smoothed, learned, materialize_grads=True)
        gradients: Any = [weight.grad for weight in learned]
        torch._foreach_add_(gradients, found)
        return torch.stack([smoothed.detach(), plain])


class Sharded(Whole):
    """Learns with a model whose weights are divided among processes.

    Each process gathers the weights of a layer when it needs them.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        smoothing: float,
        optimizer: ShardedAdam,
        loss: BatchLoss,
    ):
        super().__init__(model, smoothing, loss)
        self._optimizer = optimizer

    def learn(self, batch: Batch) -> Float[Tensor, "2"]:
        """Add the gradient of the batch; see `Steps`.

        Raises TrainingError if memory runs out although all batches have one shape, and two updates
        have fitted the memory before. In all other cases, the exception for a lack of memory is
        raised unchanged: the caller can divide the batch into smaller parts.
        """
        try:
            return add_gradient(*self._optimizer.compute(self.loss, batch, self.smoothing))
        except (MemoryError, RuntimeError) as error:
            if self._optimizer.exchange.settled and is_out_of_memory(error):
                raise TrainingError(
                    "memory ran out, although two updates of this size fitted: the same command "
                    "continues from the last checkpoint, and --micro-batches needs less memory"
                ) from error
            raise


class Halves:
    """Learns from the two halves of a batch at the same time, each with half of the cores.

    While one half waits for data from memory, the other half multiplies. There are only two parts,
    because the sum of two gradients has the same bits in either order; a longer sum may depend on
    the order.
    """

    def __init__(self, whole: Whole, parts: Sequence[Cpu]):
        self._generators = [part.generator for part in parts]
        self._steps = []
        for part in parts:
            same_weights = whole.model.sharing_weights()
            same_weights.compute_by(part)
            self._steps.append(Whole(same_weights, whole.smoothing, whole.loss))

    def learn(self, batch: Batch) -> Float[Tensor, "2"]:
        """Add the gradients of both halves; see `Steps`."""
        seeds = torch.randint(2**62, (2,)).tolist()
        for generator, seed in zip(self._generators, seeds, strict=True):
            assert generator is not None
            generator.manual_seed(seed)
        halves = list(zip(self._steps, batch.halves(), strict=True))
        first, second = side_by_side(lambda half: half[0].learn(half[1]), halves, 2)
        return first + second


class BySize:
    """Learns from small batches by `whole`; large batches may be computed in another way.

    The other way is `Halves`, or `whole` with another arithmetic. "Arithmetic" means an
    implementation of the paper's equations. `chosen` has the arithmetics, and says which batches
    are large.
    """

    def __init__(self, whole: Whole, chosen: ForTraining, *, can_halve: bool):
        self._whole, self._chosen, self._can_halve = whole, chosen, can_halve
        self._weights = whole.model.parameter_count

    def learn(self, batch: Batch) -> Float[Tensor, "2"]:
        """Add the gradient of the batch; see `Steps`."""
        large = batch.slots * self._weights >= self._chosen.large
        parts = self._chosen.parts() if large else ()
        if len(parts) == 1:
            with self._whole.model.computing_by(parts[0]):
                return self._whole.learn(batch)
        halved = len(parts) == 2 and self._can_halve and len(batch.labels) > 1
        return (self._halves if halved else self._whole).learn(batch)

    @cached_property
    def _halves(self) -> Halves:
        return Halves(self._whole, self._chosen.parts())
