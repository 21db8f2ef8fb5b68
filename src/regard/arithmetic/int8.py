"""Training with products of 8 bits, each twice as fast as in bf16: x W^T, and G W, the gradient for
x where G is that for x W^T. Translation's are in `packed`, where weights are rounded only once.

Each token's row of x and of G is rounded with a scale of its own, and so is each output's row of W.
The gradient of W is a sum over tokens, of unrounded numbers, and W itself is learned unrounded.
The idea is SwitchBack's (Wortsman et al. 2023).
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from regard.arithmetic.one_core import array, by_loops, rows, rows_of
from regard.errors import RecipeError

_INT8: ContextVar[bool] = ContextVar("int8", default=False)


class Rounded(NamedTuple):
    """A matrix as integers of 8 bits, times a scale for each row."""

    integers: Int8[Tensor, "rows columns"]
    scale: Float[Tensor, " rows"]


@contextmanager
def int8_products() -> Iterator[None]:
    """In here, and in this thread, linear layers and the logits of the loss are computed so."""
    token = _INT8.set(True)
    try:
        yield
    finally:
        _INT8.reset(token)


def in_int8() -> bool:
    """Whether this thread is to compute so; a compiled step, a GPU's, could not ask."""
    return _INT8.get()


def rounded(
    x: Float[Tensor, "*batch columns"], factors: Float[Tensor, " columns"] | None = None
) -> Rounded:
    """x times a factor for each column, in rows one below the other, the largest of each as 127."""
    columns = x.shape[-1]
    if by_loops():
        from regard.arithmetic.loops.int8 import rounded as rounded_rows

        integers = torch.empty(x.numel() // columns, columns, dtype=torch.int8)
        scale = torch.empty(len(integers))
        factors = torch.ones(columns) if factors is None else factors
        rounded_rows(rows(x), array(factors), array(integers), array(scale))
        return Rounded(integers, scale)
    matrix = x.detach().reshape(-1, columns).to(torch.float32, copy=True)
    matrix = matrix if factors is None else matrix.mul_(factors)
    scale = matrix.abs().amax(1) * (1 / 127) + 1e-30  # a row of zeros is divided by it
    return Rounded(matrix.mul_((1 / scale)[:, None]).round_().to(torch.int8), scale)


def product(
    x: Rounded, weight: Rounded, bias: Tensor | None, relu: bool, dtype: torch.dtype
) -> Float[Tensor, "rows outputs"]:
    """x W^T + b; with `relu`, 0 where that is negative. The sums are exact, in int32."""
    y = _product(x.integers, weight.integers.t())
    return _scaled(y, x.scale, weight.scale, bias, relu, dtype)


def times(gradient: Rounded, weight: Rounded, dtype: torch.dtype) -> Float[Tensor, "rows inputs"]:
    """G W, the gradient for x, of a G that was rounded with the scales of W's rows as factors."""
    y = _product(gradient.integers, weight.integers)
    return _scaled(y, gradient.scale, None, None, False, dtype)


def _product(a: Tensor, b: Tensor) -> Tensor:
    # Where one number is summed, PyTorch 2.13 on a CPU takes it from the wrong place.
    return torch._int_mm(a, b) if len(b) > 1 else a.int() * b.int()


def _scaled(
    y: Tensor,
    scale: Tensor,
    factors: Tensor | None,
    bias: Tensor | None,
    relu: bool,
    dtype: torch.dtype,
) -> Tensor:
    """y times its row's scale and its column's factor, + bias."""
    if by_loops():
        from regard.arithmetic.loops.int8 import scaled

        out = torch.empty(y.shape, dtype=dtype)
        factors = torch.ones(y.shape[1]) if factors is None else factors
        bias = torch.zeros(y.shape[1]) if bias is None else bias.float()
        scaled(array(y), array(scale), array(factors), array(bias), relu, rows_of(out))
        return out
    z = y.float().mul_(scale[:, None])
    z = z if factors is None else z.mul_(factors)
    z = (z if bias is None else z.add_(bias)).to(dtype)
    return z.relu_() if relu else z


def refuse_int8_training(device: torch.device) -> None:
    """Raise RecipeError where there are no exact products of 8 bits with a sign."""
    if device.type != "cpu" or not has_int8_training():
        raise RecipeError(
            "training.precision = int8: here are no exact products of 8 bits that are fast: set it "
            "to bf16, fp32 or auto"
        )


@cache
def has_int8_training() -> bool:
    """Whether this processor has fast and exact products of 8 bits with a sign: x86 with VNNI.

    Those without it add pairs of products in 16 bits, which they exceed.
    """
    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():
        return False  # a loop over single numbers
    try:
        most = torch.full((32, 64), 127, dtype=torch.int8)
        return bool((torch._int_mm(most, most.t()) == 64 * 127**2).all())
    except (RuntimeError, NotImplementedError):
        return False
