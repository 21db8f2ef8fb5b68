"""Convolutions over the positions of a sentence, computed as one linear layer (§4, Table 1).

The inputs that the kernel sees at a position are concatenated, so that a convolution is a linear
layer. For this reason, every implementation in `regard.arithmetic` can compute a convolution.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.equations import Computing


class Convolution(Computing):
    """A convolution whose kernel sees `kernel` positions that are `dilation` apart.

    With `causal`, the kernel sees the position itself and earlier positions. Otherwise, the first
    position that the kernel sees is `reach` // 2 before the position itself, and the last one is
    `reach` - `reach` // 2 after the position itself; `reach` is (`kernel` - 1) * `dilation`. Before
    the first position and after the last position of its input, the kernel sees zeros.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1, *, causal: bool):
        super().__init__()
        self.W = nn.Linear(kernel * inputs, outputs)
        self.kernel, self.dilation = kernel, dilation
        self.reach = (kernel - 1) * dilation
        """The distance between the first and the last position that the kernel sees."""
        self.before = self.reach if causal else self.reach // 2

    def forward(
        self, x: Float[Tensor, "rows length inputs"]
    ) -> Float[Tensor, "rows length outputs"]:
        """[rows, length, outputs] The outputs at all positions; each row is one sentence."""
        padded, length = F.pad(x, (0, 0, self.before, self.reach - self.before)), x.shape[1]
        starts = range(0, self.reach + 1, self.dilation)
        return self.by.linear(torch.cat([padded[:, i : i + length] for i in starts], -1), self.W)

    def start(self, x: Float[Tensor, "rows *length inputs"]) -> Float[Tensor, "rows 1 reach d"]:
        """The past before the first position: zeros in place of `reach` earlier inputs of width d.

        `x` has one row for each sentence. Only the number of rows, the number format and the device
        of `x` are used.
        """
        return x.new_zeros(len(x), 1, self.reach, self.W.in_features // self.kernel)

    def step(
        self,
        x: Float[Tensor, "sentences beams inputs"],
        past: Float[Tensor, "sentences beams reach inputs"],
    ) -> tuple[Tensor, Tensor]:
        """The output of a causal convolution at the next position, and the new past.

        `x` is the input at this position, and `past` has the `reach` inputs before it.
        """
        window = torch.cat([past, x.unsqueeze(2)], dim=2)
        seen = window[:, :, :: self.dilation].flatten(2)
        return self.by.linear(seen, self.W), window[:, :, 1:]
