"""Add & Norm on a CPU as one operation: LayerNorm(x + Dropout(y)) (§3.1, §5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from regard.arithmetic.cpu import Cpu


class CpuAddNorm(torch.autograd.Function):
    """Add & Norm by PyTorch's operations, with its own backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        by: Cpu,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        dropout: float,
    ) -> Tensor:
        """The normalised sum, of the shape of x."""
        ctx.scale = 1 / (1 - dropout)
        mask = by.keep_mask(y, dropout) if dropout else None
        total = x + y if mask is None else torch.addcmul(x, y, mask, value=ctx.scale)
        out, mean, rstd = torch.native_layer_norm(total, weight.shape, weight, bias, eps)
        ctx.save_for_backward(total, mean, rstd, weight, bias, mask)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of x, y, and the norm's weight and bias."""
        total, mean, rstd, weight, bias, mask = ctx.saved_tensors
        d_total, d_weight, d_bias = torch.ops.aten.native_layer_norm_backward(
            gradient.contiguous(), total, weight.shape, mean, rstd, weight, bias, [True, True, True]
        )
        d_y = d_total if mask is None else (d_total * mask).mul_(ctx.scale)
        return None, d_total, d_y, d_weight, d_bias, None, None
