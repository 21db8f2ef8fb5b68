"""x W^T + b as one operation.

PyTorch's own, in bf16 on a CPU, first copies the bias to every row and then adds the product to it;
oneDNN adds the bias while it writes the product.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.arithmetic.device import on_cpu
from regard.arithmetic.int8 import Rounded, in_int8, product, rounded, times
from regard.arithmetic.one_core import array, by_loops, rows, rows_of
from regard.arithmetic.packed import can_pack


def linear(
    x: Float[Tensor, "*batch inputs"],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"],
    relu: bool = False,
) -> Float[Tensor, "*batch outputs"]:
    """What torch.nn.functional.linear computes; with `relu`, 0 where that is negative."""
    if on_cpu(x) and in_int8():
        return _Int8Linear.apply(x, weight, bias, relu)
    if x.dtype == torch.bfloat16 and on_cpu(x) and can_pack(torch.bfloat16):
        return _CpuLinear.apply(x, weight, bias, relu)
    y = F.linear(x, weight, bias)
    return F.relu(y, inplace=not torch.is_grad_enabled()) if relu else y


class Linear(nn.Linear):
    """nn.Linear, by the operation above."""

    def forward(
        self, x: Float[Tensor, "*batch inputs"], relu: bool = False
    ) -> Float[Tensor, "*batch outputs"]:
        """x W^T + b; or max(0, x W^T + b)."""
        return linear(x, self.weight, self.bias, relu)


class _CpuLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        if relu:
            y.relu_()  # oneDNN's own would make 0 of NaN
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, y = ctx.saved_tensors
        d_sum, d_weight, d_bias = _gradients(gradient, x, y)
        return d_sum @ weight, d_weight, d_bias, None


class _Int8Linear(torch.autograd.Function):
    """Its gradient takes the rounding for none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        matrix = rounded(weight)
        y = product(rounded(x), matrix, bias, relu, x.dtype).view(*x.shape[:-1], len(weight))
        ctx.save_for_backward(x, *matrix, y if relu else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, integers, scale, y = ctx.saved_tensors
        d_sum, d_weight, d_bias = _gradients(gradient, x, y)
        d_x = times(rounded(d_sum, scale), Rounded(integers, scale), x.dtype)
        return d_x.view_as(x), d_weight, d_bias, None


def _gradients(gradient: Tensor, x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Those of x W^T + b, of W and of b."""
    d_sum, d_bias = (_of_sum_by_loops if by_loops() else _of_sum)(gradient, y)
    # [*batch, features] -> [rows, features]
    d_rows, inputs = d_sum.reshape(-1, len(d_bias)), x.reshape(-1, x.shape[-1])
    return d_sum, d_rows.t() @ inputs, d_bias


def _of_sum(gradient: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradients of x W^T + b and of b, where y is what ReLU made of it, if that did."""
    if y is not None:
        gradient = torch.ops.aten.threshold_backward(gradient, y, 0)
    return gradient, gradient.reshape(-1, gradient.shape[-1]).sum(0)


def _of_sum_by_loops(gradient: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
    from regard.arithmetic.loops.linear import column_sums, relu_backward

    d_bias = torch.zeros(gradient.shape[-1])
    if y is None:
        column_sums(rows(gradient), array(d_bias))
        return gradient, d_bias.to(gradient.dtype)
    d_sum = torch.empty(y.shape, dtype=y.dtype)
    relu_backward(rows(gradient), rows(y), rows_of(d_sum), array(d_bias))
    return d_sum, d_bias.to(y.dtype)
