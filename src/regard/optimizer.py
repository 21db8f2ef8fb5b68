"""§5.3 Optimizer: Adam, on flat buffers.

All weights lie in one tensor, and so do their gradients; the model's parameters are views of it. An
update then goes over them once, whatever the number of layers. In bf16 a master copy of the weights
and the sum of the gradients stay in fp32: steps far below bf16's resolution still add up.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.adam import adam

from regard.arithmetic.device import on_cpu
from regard.arithmetic.one_core import array, can_use_loops
from regard.machine.threads import side_by_side
from regard.recipe import TrainingRecipe

MANY = 2**22
"""Weights from which, in bf16 on a CPU, one loop does what takes several operations."""


class FlatAdam:
    """Adam over every parameter of `model`, which this makes views of flat buffers of `dtype`.

    Before each backward pass call `make_way`; once gradients of all batches are in, `step`.
    """

    def __init__(self, model: nn.Module, recipe: TrainingRecipe, dtype: torch.dtype):
        parameters = dict(model.named_parameters())
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
        self._moments = torch.zeros_like(self.master), torch.zeros_like(self.master)
        self._updates = torch.zeros((), device=self.master.device)
        self._recipe = recipe
        self._passed = self._collected = False

    def make_way(self) -> None:
        """For the gradient of the next backward pass."""
        self._collect()
        self._passed = True

    def _collect(self) -> None:
        """Add the gradient of the latest backward pass, if any, to the sum, in fp32; clear it."""
        if not self._passed:
            return
        if self._collected:
            self._total += self._latest
        else:
            self._total.copy_(self._latest)
        self._latest.zero_()
        self._passed, self._collected = False, True

    def add_up(self, over_processes: Callable[[Tensor], None]) -> None:
        """Make the gradient the sum over all processes: one tensor, one exchange."""
        self._collect()
        over_processes(self._total)

    def forget(self) -> None:
        """Drop the gradient, also of a pass that was broken off."""
        self._latest.zero_()
        self._passed = self._collected = False

    @torch.no_grad()
    def step(self, rate: float, tokens: int | Tensor) -> None:
        """Update with the sum of the gradients, divided by `tokens`, the loss's token count."""
        assert self._passed or self._collected, "there is no gradient since the last step"
        if not self._collected and self._has_loop():
            self._step_by_loops(rate, int(tokens))
        else:
            self._collect()
            self._step(rate, tokens)
        self._passed = self._collected = False

    def _has_loop(self) -> bool:
        """Whether the step is one loop over all that it needs: from one gradient in bf16."""
        many = len(self.master) >= MANY and self.weights.dtype == torch.bfloat16
        return many and on_cpu(self.master) and can_use_loops()

    def _step(self, rate: float, tokens: int | Tensor) -> None:
        mean, variance = self._moments
        adam(
            [self.master], [self._total], [mean], [variance], [], [self._updates], fused=True,
            grad_scale=torch.ones_like(self._updates) * tokens,  # divides on the way
            beta1=self._recipe.beta1, beta2=self._recipe.beta2, lr=rate, eps=self._recipe.epsilon,
            weight_decay=0.0, amsgrad=False, maximize=False,
        )  # fmt: skip
        if self.weights is not self.master:
            self.weights.copy_(self.master)

    def _step_by_loops(self, rate: float, tokens: int) -> None:
        """The same on each core for a part of the weights."""
        from regard.arithmetic.loops.adam import adam

        self._updates += 1
        updates, beta1, beta2 = int(self._updates), self._recipe.beta1, self._recipe.beta2
        size, root = rate / (1 - beta1**updates), 1 / math.sqrt(1 - beta2**updates)
        numbers = 1 / tokens, beta1, beta2, size, root, self._recipe.epsilon
        cores = torch.get_num_threads()
        tensors = self.master, self.weights, self._latest, *self._moments
        parts = zip(*(tensor.chunk(cores) for tensor in tensors), strict=True)

        def step(part: tuple[Tensor, ...]) -> None:
            master, weights, gradient, mean, variance = map(array, part)
            adam(master, weights, gradient, mean, variance, *numbers)

        list(side_by_side(step, list(parts), cores))

    def is_finite(self) -> bool:
        """Whether every weight is a number."""
        return bool(self.master.sum().isfinite())

    def named_weights(self) -> dict[str, Float[Tensor, "..."]]:
        """The fp32 weights by parameter name, as views."""
        return {
            name: self.master[place].view(shape) for name, (place, shape) in self._places.items()
        }

    def state(self) -> dict[str, Tensor]:
        """Adam's step count and moments, which with the named weights are the whole state."""
        mean, variance = self._moments
        return {"step": self._updates, "exp_avg": mean, "exp_avg_sq": variance}

    def restore(self, weights: dict[str, Tensor], state: dict[str, Tensor]) -> None:
        """Take over what `named_weights` and `state` gave; shapes must agree."""
        for name, view in self.named_weights().items():
            view.copy_(weights[name])
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self.weights.copy_(self.master)

    def give(self, to_processes: Callable[[Tensor], None]) -> None:
        """Hand weights and moments to the other processes, which call this too."""
        for tensor in (self.master, *self.state().values()):
            to_processes(tensor)
        self.weights.copy_(self.master)
