"""FlexAttention on a GPU, for compiled training steps; it skips blocks whose scores are all masked.

This is a module of its own because PyTorch's FlexAttention is slow to import.
"""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from regard.arithmetic.cuda import Cuda, CudaMask
from regard.attention import segment_mask
from regard.equations import Mask

SIDE = 128
"""The number of queries, and of keys, in a block of scores. PyTorch divides a block into tiles, and
refuses a block whose sides are not multiples of the tiles' sides. The longest sides are 128: in the
forward pass with `SMALL_TILES`, and in the backward pass with PyTorch's own tiles for wide heads.
"""
NARROW = 64
"""In bf16 and for heads of at most this width, `SMALL_TILES` are used."""
SMALL_TILES: Any = {
    "fwd_BLOCK_M": 128, "fwd_BLOCK_N": 64, "fwd_num_warps": 4, "fwd_num_stages": 3,
    "bwd_BLOCK_M1": 64, "bwd_BLOCK_N1": 64, "bwd_BLOCK_M2": 64, "bwd_BLOCK_N2": 64,
    "bwd_num_warps": 4, "bwd_num_stages": 3,
}  # fmt: skip
"""Options of the kernels, mainly the sizes of tiles: a kernel computes the scores of a tile
together. PyTorch's own tiles on an H200 are 128 x 128 forward, and 64 x 128 backward. With rows of
256 tokens, PyTorch's options took 1.9 times as long as `SMALL_TILES` in the forward pass, and 1.15
times as long in the backward pass."""
LEAST_WIDTH = 16
"""FlexAttention's kernels do not compute heads that are narrower than this."""


class SegmentMask(CudaMask):
    """A mask for FlexAttention, which computes only blocks in which a query may attend to a key.

    A query may attend to keys of its own segment and, if `causal`, to no later key. The object also
    has the masks of the other kernels; a compiler leaves out the masks that are not used.
    """

    def __init__(
        self, queries: Int[Tensor, "rows queries"], keys: Int[Tensor, "rows keys"], *, causal: bool
    ):
        super().__init__(segment_mask(queries, keys, causal=causal))
        later = 0 if causal else keys.shape[1]  # how many later positions a query may attend to
        self.blocks: BlockMask = create_block_mask(
            lambda row, _, query, key: (
                (queries[row, query] == keys[row, key]) & (key <= query + later)
            ),
            *(len(queries), None, queries.shape[1], keys.shape[1]),
            device=queries.device.type,
            BLOCK_SIZE=SIDE,
        )


class FlexCuda(Cuda):
    """Like `Cuda`, but FlexAttention computes the attention if the mask is a `SegmentMask`.

    The kernels of `Cuda` compute all other attention: with other masks, with heads narrower than
    `LEAST_WIDTH`, and with dropout on the attention weights.
    """

    def mask_of_segments(self, queries: Tensor, keys: Tensor, *, causal: bool = False) -> Mask:
        """The mask that allows only keys of the query's own segment (one sentence of a row).

        With `causal`, the mask also excludes keys at later positions than the query.
        """
        return SegmentMask(queries, keys, causal=causal)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0
    ) -> Tensor:
        """Equation (1); the output of a query that may attend to no key is 0."""
        narrow = min(query.shape[-1], value.shape[-1]) < LEAST_WIDTH
        if dropout or narrow or not isinstance(mask, SegmentMask):
            return super().attend(query, key, value, mask, dropout)
        small = query.dtype == torch.bfloat16 and max(query.shape[-1], value.shape[-1]) <= NARROW
        tiles = SMALL_TILES if small else None
        output: Tensor = flex_attention(
            query, key, value, block_mask=mask.blocks, kernel_options=tiles
        )
        return output
