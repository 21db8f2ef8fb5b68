"""Training of linear layers with 8-bit integer products, twice as fast as products in bf16.

Let G be the gradient of x W^T. The products x W^T and G W (the gradient of x) are computed in 8
bits. Each row of x, G and W is rounded with its own scale. The gradient of W, a sum over tokens, is
computed from unrounded numbers, and Adam updates an unrounded W. This method is called SwitchBack
(Wortsman et al. 2023). For inference, `layouts` rounds W only once.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.arithmetic.products import Multiply, Products, joined, linear_gradients

if TYPE_CHECKING:
    from regard.arithmetic.cpu import Cpu


class Rounded(NamedTuple):
    """A matrix rounded to 8-bit integers: row i is nearly scale[i] * integers[i]."""

    integers: Int8[Tensor, "rows columns"]
    scale: Float[Tensor, " rows"]


class Int8Products(Products):
    """Computes the products of linear layers, and the logits of the loss, in 8 bits."""

    def linear(self, by: Cpu, x: Tensor, layers: tuple[nn.Linear, ...], relu: bool) -> Tensor:
        """x W^T + b with x and W rounded; then ReLU if `relu`.

        The backward pass takes the derivative of rounding to be 1.
        """
        y: Tensor = _Int8Linear.apply(by, x, *joined(layers), relu)
        return y

    def to_logits(self, by: Cpu, embedding: Tensor, tokens: int) -> Multiply:
        """A function that multiplies states by the transposed embedding, both rounded to 8 bits."""
        weight = by.round_rows(embedding)
        return lambda states: _product(by, states, weight, None, relu=False)


class _Int8Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by: Cpu, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        matrix = by.round_rows(weight)
        y = _product(by, x, matrix, bias, relu).view(*x.shape[:-1], len(weight))
        ctx.by = by
        ctx.save_for_backward(x, *matrix, y if relu else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, integers, scale, y = ctx.saved_tensors
        d_sum, d_weight, d_bias = linear_gradients(ctx.by, gradient, x, y)
        # Row i of W was divided by its scale, so column i of d_sum is multiplied by this scale.
        rounded = ctx.by.round_rows(d_sum, scale)
        sums = _exact_product(rounded.integers, integers)
        d_x = ctx.by.scale_products(sums, rounded.scale, None, None, False, x.dtype)
        return None, d_x.view_as(x), d_weight, d_bias, None


def _product(
    by: Cpu, x: Tensor, weight: Rounded, bias: Tensor | None, relu: bool
) -> Float[Tensor, "rows outputs"]:
    """x W^T + b, or max(0, x W^T + b) with `relu`, where x is rounded to 8 bits first."""
    rounded = by.round_rows(x)
    sums = _exact_product(rounded.integers, weight.integers.t())
    return by.scale_products(sums, rounded.scale, weight.scale, bias, relu, x.dtype)


def _exact_product(a: Tensor, b: Tensor) -> Tensor:
    """The product of two int8 matrices, in int32; its sums are exact."""
    # On some CPUs, _int_mm of PyTorch 2.13 gives a wrong result if b has only one row.
    return torch._int_mm(a, b) if len(b) > 1 else a.int() * b.int()


def round_rows(
    x: Float[Tensor, "*batch columns"], factors: Float[Tensor, " columns"] | None = None
) -> Rounded:
    """Multiply each column of x by its factor; round each row, with a scale of its own.

    The rounded integers are from -127 to 127. All dimensions of x except the last are flattened. If
    `factors` is None, columns are not multiplied.
    """
    matrix = x.detach().reshape(-1, x.shape[-1]).to(torch.float32, copy=True)
    matrix = matrix if factors is None else matrix.mul_(factors)
    scale = matrix.abs().amax(1) * (1 / 127) + 1e-30  # the scale of a row of zeros must not be 0
    return Rounded(matrix.mul_((1 / scale)[:, None]).round_().to(torch.int8), scale)


def scale_products(
    y: Tensor,
    scale: Tensor,
    factors: Tensor | None,
    bias: Tensor | None,
    relu: bool,
    dtype: torch.dtype,
) -> Tensor:
    """Multiply row i of y by scale[i], and column j by factors[j]; add the bias; ReLU if `relu`.

    y is [rows, columns]; the result has the dtype `dtype`. If `factors` or `bias` is None, it is
    left out.
    """
    z = y.float().mul_(scale[:, None])
    z = z if factors is None else z.mul_(factors)
    z = (z if bias is None else z.add_(bias)).to(dtype)
    return z.relu_() if relu else z


@cache
def has_int8_training() -> bool:
    """Whether this processor has fast and exact products of signed 8-bit integers: x86 with VNNI.

    Without VNNI, pairs of products are added in 16 bits, and may overflow.
    """
    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available():
        return False  # PyTorch would multiply slowly, without vector instructions
    try:
        most = torch.full((32, 64), 127, dtype=torch.int8)
        return bool((torch._int_mm(most, most.t()) == 64 * 127**2).all())
    except (RuntimeError, NotImplementedError):
        return False
