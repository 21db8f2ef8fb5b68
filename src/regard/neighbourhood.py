"""§4 Restricted self-attention: a position attends to positions that are at most r / 2 away.

The paper describes it as "considering only a neighborhood of size r in the input sequence centered
around the respective output position". A long row is computed in blocks of r / 2 queries. A block
needs its own keys and the keys of the blocks beside it, so memory and time grow with n r, not n^2.
Every implementation of the equations computes the blocks as if they were rows.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from regard.attention import MultiHeadAttention, segment_mask
from regard.equations import Arithmetic, Mask
from regard.sizes import BLOCKED_FROM


class RestrictedAttention(MultiHeadAttention):
    """Self-attention to positions at most `reach` away.

    This class does not compute attention scores itself. `restricted` combines it with an attention
    class, which computes the scores, into a subclass of both classes.
    """

    reach: int

    def forward(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        """Self-attention of x; `memory` is not read, because it is x, too.

        `mask` must come from `neighbourhood_mask`, for the rows of x.
        """
        query, keys, values = self.project(x)
        length, width = x.shape[1], max(1, self.reach)
        if mask.allowed.shape[2] == length:  # the mask is for whole rows
            return self.attend(query, keys, values, mask)
        windows = mask.allowed.shape[-1] // width
        y = self.attend(
            _blocks(query, width), _windows(keys, width, windows), _windows(values, width, windows),
            mask,
        )  # fmt: skip
        # [rows * blocks, width, d_model] -> [rows, length, d_model]
        return y.reshape(len(x), -1, y.shape[-1])[:, :length]


def restricted(kind: type[MultiHeadAttention]) -> Any:
    """A subclass of the attention class `kind` that is restricted to a neighbourhood."""
    return type(f"Restricted{kind.__name__}", (RestrictedAttention, kind), {})


def neighbourhood_mask(
    by: Arithmetic,
    segments: Int[Tensor, "rows length"],
    reach: int,
    *,
    causal: bool,
    whole: bool = False,
) -> Mask:
    """The mask of attention between positions of one segment that are at most `reach` apart.

    With `causal`, a position does not attend to later positions. A block is `reach` positions, or
    one position if `reach` is 0. If `whole` is True, or if a row has at most `BLOCKED_FROM` blocks,
    the mask is for whole rows; otherwise, it is for the blocks of the rows.
    """
    length, width = segments.shape[1], max(1, reach)
    if whole or length <= BLOCKED_FROM * width:
        places = torch.arange(length, device=segments.device)
        return by.mask(segment_mask(segments, segments) & _near(places, places, reach, causal))
    windows = 2 if causal else 3
    places = torch.arange(windows * width, device=segments.device)
    near = _near(places[width : 2 * width], places, reach, causal)
    # Positions outside the row get segment numbers that equal no other: -1 as query, -2 as key.
    each = segments[:, None, :, None]
    queries = _blocks(each, width, -1)[:, 0, :, 0]
    keys = _windows(each, width, windows, -2)[:, 0, :, 0]
    return by.mask(segment_mask(queries, keys) & near)


def _near(queries: Tensor, keys: Tensor, reach: int, causal: bool) -> Tensor:
    before = queries[:, None] - keys
    return (before <= reach) & (before >= (0 if causal else -reach))


def _blocks(x: Tensor, width: int, value: float = 0) -> Tensor:
    """[rows, heads, length, d] -> [rows * blocks, heads, width, d]; the last block is padded."""
    padded = F.pad(x, (0, 0, 0, -x.shape[2] % width), value=value)
    return padded.unflatten(2, (-1, width)).transpose(1, 2).flatten(0, 1)


def _windows(x: Tensor, width: int, windows: int, value: float = 0) -> Tensor:
    """[rows, heads, length, d] -> [rows * blocks, heads, windows * width, d].

    Each block is joined with the block before it and, if `windows` is 3, with the block after it.
    """
    length = x.shape[2] + -x.shape[2] % width
    around = F.pad(x, (0, 0, width, length - x.shape[2] + width), value=value)
    parts = [around[:, :, i * width : i * width + length] for i in range(windows)]
    return torch.cat([_blocks(part, width) for part in parts], dim=2)
