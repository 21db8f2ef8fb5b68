"""Linear layers for inference on a CPU: their weights are laid out once for its matrix kernels.

oneDNN rearranges the weight of a plain `F.linear` at every call. Here that is done when the model
is opened; `Int8Linear` also rounds the weight to 8 bits, one scale for each output, and multiplies
in integers, with VNNI instructions twice as fast as bf16.
"""

from functools import cache

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from regard.arithmetic.one_core import array, by_loops, rows, rows_of
from regard.errors import RecipeError

LARGEST = 127
# As tensors: of a number each operation would make one first.
TOP_BIT = torch.tensor(128, dtype=torch.uint8)
TINY = torch.tensor(1e-30)  # a row of zeros is divided by it


class PackedLinear(nn.Module):
    """x W^T + b in the precision of the weight, [outputs, inputs]."""

    def __init__(self, weight: Float[Tensor, "outputs inputs"], bias: Tensor | None = None):
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self.bias = None if bias is None else bias.detach()

    def forward(
        self, x: Float[Tensor, "*batch inputs"], relu: bool = False
    ) -> Float[Tensor, "*batch outputs"]:
        """What nn.Linear computes; with `relu`, 0 where that is negative."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y.relu_() if relu else y  # oneDNN's own would make 0 of NaN


class Int8Linear(nn.Module):
    """x W^T + b with x and W in 8 bits; a scale for each row of x and for each output.

    The sum is exact in int32, so the error is that of the rounding alone: a row's largest entry is
    127 and a weight's largest entry `largest`, 127 where that keeps sums exact.
    """

    def __init__(
        self,
        weight: Float[Tensor, "outputs inputs"],
        bias: Tensor | None = None,
        largest: int | None = None,
    ):
        super().__init__()
        weight = weight.detach().float()
        self.scale = _scale(weight.abs().amax(1), largest or largest_weight())
        rounded = (weight / self.scale[:, None]).round_().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zero = torch.zeros(len(weight), dtype=torch.int64)
        self.bias = None if bias is None else bias.detach().float()

    def forward(
        self, x: Float[Tensor, "*batch inputs"], relu: bool = False
    ) -> Float[Tensor, "*batch outputs"]:
        """What nn.Linear computes of fp32 states, up to the rounding; or 0, as above."""
        rounded, scale = _rounded(x)
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, 128, self.weight, self.scale, self.zero, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        if self.bias is not None and by_loops():
            from regard.arithmetic.loops.packed import scaled

            scaled(rows_of(y), array(scale.view(-1)), array(self.bias), relu)
            return y
        y = y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale, out=y)
        return y.relu_() if relu else y


def _rounded(
    x: Float[Tensor, "*batch inputs"],
) -> tuple[UInt8[Tensor, "*batch inputs"], Float[Tensor, "*batch 1"]]:
    """n + 128 for each entry of x, and the scale of each row, which times n is x.

    Only unsigned activations have a fast kernel.
    """
    if by_loops():
        from regard.arithmetic.loops.packed import rounded as rounded_rows

        rounded, scale = x.new_empty(x.shape, dtype=torch.uint8), x.new_empty(*x.shape[:-1], 1)
        rounded_rows(rows(x), rows_of(rounded), array(scale.view(-1)))
        return rounded, scale
    largest = torch.maximum(x.amax(-1, keepdim=True), x.amin(-1, keepdim=True).neg_())
    scale = _scale(largest, LARGEST)
    # The top bit flipped, of 8 with a sign, adds 128.
    return (x / scale).round_().to(torch.int8).view(torch.uint8).bitwise_xor_(TOP_BIT), scale


def _scale(entry: Tensor, rounded: int) -> Tensor:
    """What is rounded to 1 where this entry is rounded to that number."""
    return torch.add(TINY, entry, alpha=1 / rounded)


def can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN is there and computes in this precision."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()


def refuse_int8(device: torch.device) -> None:
    """Raise RecipeError where there are no exact products of 8 bits."""
    if device.type != "cpu" or not can_pack(torch.float32) or not largest_weight():
        raise RecipeError("there is no int8 on this device: use bf16 or fp32")


@cache
def largest_weight() -> int:
    """The largest that keeps the sums of `Int8Linear` exact; 0 where there are none.

    127 with VNNI instructions. Older x86 processors add pairs of products in 16 bits, which two of
    255 x 64 still fit: their weights have 7 bits.
    """
    return next(filter(_is_exact, (LARGEST, 64)), 0)


def _is_exact(largest: int) -> bool:
    try:
        ones = torch.ones(16, 64)
        return bool((Int8Linear(ones, largest=largest)(ones) == 64).all())
    except (RuntimeError, NotImplementedError):
        return False
