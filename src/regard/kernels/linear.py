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

from regard.kernels.device import on_cpu
from regard.kernels.packed import can_pack


def linear(
    x: Float[Tensor, "*batch inputs"],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"],
) -> Float[Tensor, "*batch outputs"]:
    """What torch.nn.functional.linear computes."""
    if x.dtype == torch.bfloat16 and on_cpu(x) and can_pack(torch.bfloat16):
        return _CpuLinear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """nn.Linear, by the operation above."""

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """x W^T + b."""
        return linear(x, self.weight, self.bias)


class _CpuLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        # [*batch, features] -> [rows, features]
        rows, inputs = gradient.reshape(-1, len(weight)), x.reshape(-1, weight.shape[1])
        return gradient @ weight, rows.t() @ inputs, rows.sum(0)
