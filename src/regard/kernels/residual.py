"""Add & Norm as one operation: LayerNorm(x + Dropout(y)), §3.1 and §5.4."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.kernels.device import on_cpu
from regard.kernels.dropout import kept
from regard.kernels.one_core import array, by_loops


def add_norm(
    x: Float[Tensor, "*batch d_model"],
    y: Float[Tensor, "*batch d_model"],
    norm: nn.LayerNorm,
    dropout: float = 0.0,
) -> Float[Tensor, "*batch d_model"]:
    """LayerNorm(x + Dropout(y)); `dropout` is the probability of dropping an element of y."""
    if not torch.is_grad_enabled() and not dropout and by_loops():
        return _by_loop(x, y, norm)
    if not on_cpu(x) or not torch.is_grad_enabled():
        return norm(x + F.dropout(y, dropout))
    out: Tensor = _CpuAddNorm.apply(x, y, norm.weight, norm.bias, norm.eps, dropout)
    return out


def _by_loop(x: Tensor, y: Tensor, norm: nn.LayerNorm) -> Tensor:
    from regard import loops

    out = torch.empty_like(x)
    rows = (array(z.reshape(-1, z.shape[-1])) for z in (x, y))
    loops.add_norm(*rows, array(norm.weight), array(norm.bias), norm.eps, array(out.view(-1, out.shape[-1])))
    return out


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
