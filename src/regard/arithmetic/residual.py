"""Add & Norm as one operation: LayerNorm(x + Dropout(y)), §3.1 and §5.4."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.arithmetic.device import on_cpu
from regard.arithmetic.dropout import drop, kept, seed, threshold
from regard.arithmetic.one_core import array, by_loops, rows, rows_of


def add_norm(
    x: Float[Tensor, "*batch d_model"],
    y: Float[Tensor, "*batch d_model"],
    norm: nn.LayerNorm,
    dropout: float = 0.0,
) -> Float[Tensor, "*batch d_model"]:
    """LayerNorm(x + Dropout(y)); `dropout` is the probability of dropping an element of y."""
    if not on_cpu(x):
        return norm(x + F.dropout(y, dropout))
    if not torch.is_grad_enabled():
        return _by_loop(x, y, norm) if by_loops() and not dropout else norm(x + drop(y, dropout))
    operation = _LoopAddNorm if by_loops() else _CpuAddNorm
    out: Tensor = operation.apply(x, y, norm.weight, norm.bias, norm.eps, dropout)
    return out


def _by_loop(x: Tensor, y: Tensor, norm: nn.LayerNorm) -> Tensor:
    from regard.arithmetic.loops.residual import add_norm as loop

    out = torch.empty(x.shape, dtype=x.dtype)
    loop(rows(x), rows(y), array(norm.weight), array(norm.bias), norm.eps, rows_of(out))
    return out


class _LoopAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, eps: float, dropout: float
    ) -> Tensor:
        from regard.arithmetic.loops.residual import dropped_add_norm

        total, out = (torch.empty(x.shape, dtype=x.dtype) for _ in range(2))
        mean, factor = torch.empty(2, x.numel() // x.shape[-1]).unbind()
        # Masks are not kept but made again from the seed.
        ctx.masks = one, drops, scale = (
            seed() if dropout else 0,
            threshold(dropout),
            1 / (1 - dropout),
        )
        dropped_add_norm(
            rows(x), rows(y), array(weight), array(bias), eps, one, drops, scale,
            rows_of(total), rows_of(out), array(mean), array(factor),
        )  # fmt: skip
        ctx.save_for_backward(total, mean, factor, weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        from regard.arithmetic.loops.residual import dropped_add_norm_backward

        total, mean, factor, weight = ctx.saved_tensors
        d_x, d_y = (torch.empty(total.shape, dtype=total.dtype) for _ in range(2))
        d_weight, d_bias = torch.zeros(2, len(weight)).unbind()
        one, drops, scale = ctx.masks
        dropped_add_norm_backward(
            rows(gradient), rows(total), array(mean), array(factor), array(weight),
            one, drops, scale, rows_of(d_x), rows_of(d_y), array(d_weight), array(d_bias),
        )  # fmt: skip
        return d_x, d_y, d_weight.to(weight.dtype), d_bias.to(weight.dtype), None, None


class _CpuAddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, eps: float, dropout: float
    ) -> Tensor:
        ctx.scale = 1 / (1 - dropout)
        mask = kept(y, dropout) if dropout else None
        total = x + y if mask is None else torch.addcmul(x, y, mask, value=ctx.scale)
        out, mean, rstd = torch.native_layer_norm(total, weight.shape, weight, bias, eps)
        ctx.save_for_backward(total, mean, rstd, weight, bias, mask)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        total, mean, rstd, weight, bias, mask = ctx.saved_tensors
        d_total, d_weight, d_bias = torch.ops.aten.native_layer_norm_backward(
            gradient.contiguous(), total, weight.shape, mean, rstd, weight, bias, [True, True, True]
        )
        d_y = d_total if mask is None else (d_total * mask).mul_(ctx.scale)
        return d_total, d_y, d_weight, d_bias, None, None
