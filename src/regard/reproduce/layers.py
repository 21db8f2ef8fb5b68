"""The layers of Table 1, with one interface: [rows, n, d] -> [rows, n, d].

`rows` is the number of sequences, n their length, and d the width of a state. The layers have no
residual connection and no normalisation, which Table 1 does not count. Table 1 does not count the
projections of `ProjectedSelfAttention`, either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import attention
from regard.complexity import Sizes

States = Float[Tensor, "rows n d"]


class SelfAttention(nn.Module):
    """Equation (1) in one head, without projections: queries, keys and values are the input."""

    def forward(self, x: States) -> States:
        """Every position attends to every position."""
        whole = x[:, None]
        mask = torch.ones(1, 1, 1, x.shape[1], dtype=torch.bool, device=x.device)
        return attention(whole, whole, whole, mask)[0][:, 0]


class ProjectedSelfAttention(nn.Module):
    """Self-attention in one head, with the projections W^Q, W^K, W^V and W^O (§3.2.2)."""

    def __init__(self, d: int):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(d, d) for _ in range(4))

    def forward(self, x: States) -> States:
        """Every position attends to every position."""
        query, key, value = (module(x)[:, None] for module in (self.query, self.key, self.value))
        mask = torch.ones(1, 1, 1, x.shape[1], dtype=torch.bool, device=x.device)
        return self.output(attention(query, key, value, mask)[0][:, 0])


class RestrictedSelfAttention(nn.Module):
    """§4: equation (1) where a position sees only itself and r / 2 positions on each side.

    The sequence is divided into blocks of r / 2 positions. Scores are computed only between a block
    and itself, and between a block and the block on each side, so that memory and operations are
    linear in n. A mask then excludes keys that are more than r / 2 positions away. Here r / 2 is
    rounded down, and is at least 1.
    """

    def __init__(self, r: int):
        super().__init__()
        self.reach = max(1, r // 2)

    def forward(self, x: States) -> States:
        """Each position attends to positions that are at most r / 2 away."""
        rows, n, d = x.shape
        blocks = -(-n // self.reach)
        padded = F.pad(x, (0, 0, self.reach, (blocks + 1) * self.reach - n))
        seen = padded.unfold(1, 3 * self.reach, self.reach).transpose(2, 3)  # each block's keys
        query = padded[:, self.reach : -self.reach].reshape(rows * blocks, 1, self.reach, d)
        key = seen.reshape(rows * blocks, 1, 3 * self.reach, d)
        mask = self._mask(n, blocks, x.device).repeat(rows, 1, 1, 1)
        weighted, _ = attention(query, key, key, mask)
        return weighted.reshape(rows, blocks * self.reach, d)[:, :n]

    def _mask(self, n: int, blocks: int, device: torch.device) -> Tensor:
        """A mask [blocks, 1, reach, 3 reach]: True if a query of a block sees a key.

        `reach` is r / 2; the keys of a block are those of the block and of its two neighbours.
        """
        begin = torch.arange(blocks, device=device)[:, None, None] * self.reach
        query = begin + torch.arange(self.reach, device=device)[:, None]
        key = begin + torch.arange(-self.reach, 2 * self.reach, device=device)
        return (((query - key).abs() <= self.reach) & (key >= 0) & (key < n))[:, None]


class Recurrent(nn.Module):
    """h_t = tanh(W x_t + U h_{t-1} + biases): a recurrent layer without gates."""

    def __init__(self, d: int):
        super().__init__()
        self.cells = nn.RNN(d, d, batch_first=True)

    def forward(self, x: States) -> States:
        """All states h_1, ..., h_n, as [rows, n, d]."""
        return self.cells(x)[0]


class Convolutional(nn.Module):
    """A convolution over a position and earlier positions, as in a decoder.

    The kernel sees k positions that are `dilation` apart. If the convolution is separable, each
    channel has its own kernel, and a matrix mixes the channels (§4).
    """

    def __init__(self, d: int, k: int, dilation: int = 1, *, separable: bool = False):
        super().__init__()
        self.before = (k - 1) * dilation
        groups = d if separable else 1
        self.kernel = nn.Conv1d(d, d, k, dilation=dilation, groups=groups)
        self.mixed = nn.Linear(d, d) if separable else nn.Identity()

    def forward(self, x: States) -> States:
        """The convolution at each of the n positions."""
        return self.mixed(self.kernel(F.pad(x.transpose(1, 2), (self.before, 0))).transpose(1, 2))


class OneStep(nn.Module):
    """One step of `Recurrent` without biases: tanh(W x_t + U h_{t-1}) for all t at once."""

    def __init__(self, layer: Recurrent):
        super().__init__()
        self.w, self.u = (p for p in layer.parameters() if p.dim() > 1)

    def forward(self, x: States, before: States) -> States:
        """The states h_t after one more step; `before` has the states of all t before this step."""
        shifted = F.pad(before, (0, 0, 1, 0))[:, :-1]
        return torch.tanh(x @ self.w.T + shifted @ self.u.T)


LAYERS: Mapping[str, Callable[[Sizes], nn.Module]] = {
    "self-attention": lambda s: SelfAttention(),
    "with projections": lambda s: ProjectedSelfAttention(s.d),
    "restricted": lambda s: RestrictedSelfAttention(s.r),
    "recurrent": lambda s: Recurrent(s.d),
    "convolutional": lambda s: Convolutional(s.d, s.k),
    "dilated": lambda s: Convolutional(s.d, s.k, s.k),
    "separable": lambda s: Convolutional(s.d, s.k, separable=True),
}
"""For the name of a layer, a function that makes the layer. A dilated layer here has dilation k; a
stack of dilated layers has the dilations 1, k, k^2, ... (`path.path_length`)."""
