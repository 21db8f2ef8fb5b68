"""§5.3 Optimizer: Adam, on flat buffers.

A flat buffer is one tensor of one dimension, with a place for each number of all parameters. The
weights are in a flat buffer, and the model's parameters are views of it. More flat buffers hold the
gradient of the last backward pass, the sum of the earlier gradients, and each of the two moments.
An update is therefore one pass over a few tensors, however many layers there are. In bf16, a master
copy of the weights and the sum of the gradients are kept in fp32, so that small changes, which bf16
would round away, add up.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.arithmetic.plain import PLAIN
from regard.equations import Adam, Arithmetic, Learned, Moments
from regard.recipe import TrainingRecipe


class FlatAdam:
    """Adam for all parameters of `model`, which become views of a flat buffer of `dtype`.

    `by` computes the updates. Call `make_way` before each backward pass, and `step` after the
    backward pass of the last batch of an update.
    """

    def __init__(
        self, model: nn.Module, recipe: TrainingRecipe, dtype: torch.dtype, by: Arithmetic = PLAIN
    ):
        named = dict(model.named_parameters())
        self._names = list(named)
        parameters = {name: named[name] for name in self._arranged(model)}
        self.master = torch.cat([p.detach().float().flatten() for p in parameters.values()])
        self.weights = self.master if dtype == torch.float32 else self.master.to(dtype)
        self._latest = torch.zeros_like(self.weights)
        self._total = torch.zeros_like(self.master)
        self._places: dict[str, tuple[slice, torch.Size]] = {}
        start = 0
        for name, parameter in parameters.items():
            place = slice(start, start + parameter.numel())
            self._places[name] = place, parameter.shape
            parameter.data = self.weights[place].view(parameter.shape)
            parameter.grad = self._latest[place].view(parameter.shape)
            start = place.stop
        zeros = (torch.zeros_like(self.master) for _ in range(2))
        self._moments = Moments(self.master.new_zeros(()), *zeros)
        self._constants = Adam(recipe.beta1, recipe.beta2, recipe.epsilon)
        self._by = by
        self._in_latest = self._in_total = False

    def _arranged(self, model: nn.Module) -> list[str]:
        """The names of all parameters, in the order that they have in the flat buffers."""
        return [name for name, _ in model.named_parameters()]

    def make_way(self) -> None:
        """Add the last gradient, if any, to the sum; set the gradient to 0 for the next pass."""
        self._collect()
        self._in_latest = True  # the next backward pass writes a gradient into `_latest`

    def _collect(self) -> None:
        """Add the last backward pass's gradient, if any, to the fp32 sum; set the gradient to 0."""
        if not self._in_latest:
            return
        if self._in_total:
            self._total += self._latest
        else:
            self._total.copy_(self._latest)
        self._latest.zero_()
        self._in_latest, self._in_total = False, True

    def add_up(self, over_processes: Callable[[Tensor], None]) -> None:
        """Sum the gradient over all processes: `over_processes` sums one tensor, in place."""
        self._collect()
        over_processes(self._total)

    def forget(self) -> None:
        """Discard the gradients since the last step, even if a backward pass was interrupted."""
        self._latest.zero_()
        self._in_latest = self._in_total = False

    @torch.no_grad()
    def step(self, rate: float, tokens: int | Tensor) -> None:
        """Update the weights with the learning rate `rate` and the summed gradient / `tokens`.

        `tokens` is the number of tokens over which the loss was summed.
        """
        assert self._in_latest or self._in_total, "there is no gradient since the last step"
        if self._in_total:
            self._collect()
        gradient = self._total if self._in_total else self._latest
        self._update(Learned(self.master, self.weights, gradient, self._moments), rate, tokens)
        self._in_latest = self._in_total = False

    def _update(self, learned: Learned, rate: float, tokens: int | Tensor) -> None:
        """Update the weights by `Arithmetic.adam`."""
        self._by.adam(learned, self._constants, rate, tokens)

    def is_finite(self) -> bool:
        """Whether every weight is finite; False also if the sum of all weights overflows."""
        return bool(self.master.sum().isfinite())

    def named_weights(self) -> dict[str, Float[Tensor, "..."]]:
        """The fp32 weights by parameter name, as views."""
        return {
            name: self.master[place].view(shape) for name, (place, shape) in self._places.items()
        }

    def state(self) -> dict[str, Tensor]:
        """Adam's step count and moments: all of its state except the weights.

        Moments are in the order of the model's parameters, whatever the order in the buffers.
        """
        updates, mean, variance = self._moments
        return {
            "step": updates,
            "exp_avg": self._in_order(mean),
            "exp_avg_sq": self._in_order(variance),
        }

    def _in_order(self, flat: Tensor) -> Tensor:
        """The numbers of a buffer in the order of the parameters; a copy if the order differs."""
        if self._names == list(self._places):
            return flat
        return torch.cat([flat[self._places[name][0]] for name in self._names])

    def restore(self, weights: dict[str, Tensor], state: dict[str, Tensor]) -> None:
        """Load the values that `named_weights` and `state` returned.

        Raises KeyError if a name is missing, and RuntimeError if shapes do not fit.
        """
        for name, view in self.named_weights().items():
            view.copy_(weights[name])
        updates, mean, variance = self._moments
        updates.copy_(state["step"])
        sizes = [self._places[name][1].numel() for name in self._names]
        for flat, moment in (mean, state["exp_avg"]), (variance, state["exp_avg_sq"]):
            for name, part in zip(self._names, moment.split(sizes), strict=True):
                flat[self._places[name][0]] = part
        self.weights.copy_(self.master)

    def give(self, to_processes: Callable[[Tensor], None]) -> None:
        """Broadcast the weights and moments of the first process; every process must call this.

        `to_processes` replaces a tensor by the first process's tensor, in place.
        """
        for tensor in (self.master, *self._moments):
            to_processes(tensor)
        self.weights.copy_(self.master)
