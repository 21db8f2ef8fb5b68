"""A kernel for a GPU: a residual connection with layer normalisation (§3.1), without dropout.

PyTorch's two operations would write the sum x + y to memory and read it again.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor, nn


def add_norm_kernel(
    x: Float[Tensor, "*batch d_model"], y: Float[Tensor, "*batch d_model"], norm: nn.LayerNorm
) -> Float[Tensor, "*batch d_model"]:
    """LayerNorm(x + y); the sum and its normalisation are computed in fp32."""
    width = x.shape[-1]
    output = torch.empty_like(x, memory_format=torch.contiguous_format)
    size = triton.next_power_of_2(width)
    _add_norm[(x.numel() // width,)](
        x.contiguous(), y.contiguous(), norm.weight, norm.bias, output, width, norm.eps, size,
        num_warps=1 if size <= 1024 else 8,
    )  # fmt: skip
    return output


@triton.jit  # type: ignore[untyped-decorator]
def _add_norm(  # type: ignore[no-untyped-def]  # Triton knows no Python types
    x, y, weight, bias, output,
    width: tl.constexpr, epsilon: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """One program computes one row; `size`, a power of 2, is at least `width`."""
    start, at = tl.program_id(0).to(tl.int64) * width, tl.arange(0, size)
    real = at < width
    total = tl.load(x + start + at, mask=real, other=0.0).to(tl.float32)
    total += tl.load(y + start + at, mask=real, other=0.0).to(tl.float32)
    apart = tl.where(real, total - tl.sum(total, axis=0) / width, 0.0)
    variance = tl.sum(apart * apart, axis=0) / width
    scale = tl.load(weight + at, mask=real, other=0.0).to(tl.float32)
    shift = tl.load(bias + at, mask=real, other=0.0).to(tl.float32)
    result = apart / tl.sqrt(variance + epsilon) * scale + shift
    tl.store(output + start + at, result, mask=real)
