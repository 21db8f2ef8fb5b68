"""Muon: an optimizer that needs fewer steps than Adam, for the matrices inside the layers.

Adam divides each number of the gradient by the recent size of that number. Muon (Jordan et al.
2024) regards a matrix as a whole: the update of a matrix is an almost orthogonal matrix. For all
inputs of equal norm, such an update changes the layer's output by nearly the same amount.
Embeddings, biases and gains still learn by Adam (§5.3).
"""

from itertools import groupby
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.arithmetic.plain import PLAIN
from regard.equations import Arithmetic, Learned, Moments
from regard.optimizer import FlatAdam
from regard.recipe import TrainingRecipe

MOMENTUM = 0.95
"""The decay of the mean of the gradients."""
UPDATE_SIZE = 0.2
"""The root mean square of the numbers of an update, as a multiple of the learning rate. Adam's
updates are about as large, so one learning rate suits both optimizers (Liu et al. 2025)."""
ROUNDS = 5
"""The number of rounds of the Newton-Schulz iteration in `orthogonal`."""
LINEAR, CUBIC, QUINTIC = 3.4445, -4.7750, 2.0315
"""The coefficients of the iteration (Jordan et al. 2024)."""


class Alike(NamedTuple):
    """Matrices of one shape, which are next to each other in each flat buffer."""

    place: slice
    """The indices of the matrices' numbers in each flat buffer."""
    rows: int
    columns: int


class FlatMuon(FlatAdam):
    """Muon for the weights of linear layers, and Adam for all other parameters, on flat buffers.

    `regard.optimizer` explains flat buffers. The mean M of the gradients G of a matrix W is kept
    where Adam has its first moment. S is the update before learning rate and weight decay; `rate`
    is the learning rate:

        M <- MOMENTUM M + (1 - MOMENTUM) G
        S <- UPDATE_SIZE sqrt(max(rows, columns)) orthogonal(MOMENTUM M + (1 - MOMENTUM) G)
        W <- W - rate (S + weight_decay W)
    """

    def __init__(
        self, model: nn.Module, recipe: TrainingRecipe, dtype: torch.dtype, by: Arithmetic = PLAIN
    ):
        super().__init__(model, recipe, dtype, by)
        self._decay = recipe.weight_decay
        self._alike: list[Alike] = []
        places = (self._places[name] for name in _matrices(model))
        for (rows, columns), group in groupby(places, key=lambda place: place[1]):
            each = [place for place, _ in group]
            whole = slice(each[0].start, each[-1].stop)
            self._alike.append(Alike(whole, rows, columns))
        starts = [alike.place.start for alike in self._alike]
        self._rest = slice(0, min(starts, default=len(self.master)))

    def _arranged(self, model: nn.Module) -> list[str]:
        """The names of Adam's parameters, then the names of the matrices, sorted by shape."""
        matrices = _matrices(model)
        others = set(dict(model.named_parameters())).difference(matrices)
        return [name for name in super()._arranged(model) if name in others] + matrices

    def _update(self, learned: Learned, rate: float, tokens: int | Tensor) -> None:
        """Update the matrices by Muon, and all other parameters by `Arithmetic.adam`."""
        super()._update(_part(learned, self._rest), rate, tokens)
        for alike in self._alike:
            _move(_part(learned, alike.place), alike, rate, self._decay, tokens)


def _matrices(model: nn.Module) -> list[str]:
    """The names of the weights of all linear layers, sorted by shape."""
    linear = {f"{n}.weight": m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    return sorted(linear, key=lambda name: linear[name].weight.shape)


def _part(learned: Learned, place: slice) -> Learned:
    """Views of the numbers in `place`, in each flat buffer of `learned`."""
    master, weights, gradient, (updates, mean, variance) = learned
    moments = Moments(updates, mean[place], variance[place])
    part = master[place]
    rounded = part if weights is master else weights[place]
    return Learned(part, rounded, gradient[place], moments)


def _move(learned: Learned, alike: Alike, rate: float, decay: float, tokens: int | Tensor) -> None:
    """Update the matrices `alike` by Muon, and set their gradient to 0.

    `learned` holds only the numbers of these matrices.
    """
    gradient, mean = learned.gradient.float() / tokens, learned.moments.mean
    mean.lerp_(gradient, 1 - MOMENTUM)
    ahead = mean.lerp(gradient, 1 - MOMENTUM).view(-1, alike.rows, alike.columns)
    step = orthogonal(ahead, learned.weights.dtype).flatten()
    size = UPDATE_SIZE * max(alike.rows, alike.columns) ** 0.5
    learned.master.mul_(1 - rate * decay).sub_(step, alpha=rate * size)
    learned.weights.copy_(learned.master)
    learned.gradient.zero_()


def orthogonal(
    matrices: Float[Tensor, "count rows columns"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "count rows columns"]:
    """Matrices with the singular vectors of `matrices`, and singular values from about 0.7 to 1.2.

    A singular value that is very small compared with the norm of its matrix becomes a value below
    0.7. The matrices are multiplied in `dtype`; the result is in fp32.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = (x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-30)).to(dtype)
    for _ in range(ROUNDS):  # s <- LINEAR s + CUBIC s^3 + QUINTIC s^5, for each singular value s
        squares = torch.bmm(x, x.mT)
        change = torch.baddbmm(squares, squares, squares, beta=CUBIC, alpha=QUINTIC)
        x = torch.baddbmm(x, change, x, beta=LINEAR)
    return (x.mT if tall else x).float()
