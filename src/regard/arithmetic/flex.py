"""FlexAttention on a GPU, for the compiled step: blocks of scores without a segment are skipped.

It is a module of its own because PyTorch's takes a while to import.
"""

from jaxtyping import Int
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from regard.arithmetic.cuda import Cuda, CudaMask
from regard.attention import causal_mask, segment_mask
from regard.equations import Mask

SIDE = 128
"""How many queries and keys are a block: the smallest for which PyTorch has a backward kernel."""
LEAST_WIDTH = 16
"""The narrowest heads that the kernels take."""


class SegmentMask(CudaMask):
    """A mask that FlexAttention reads: the segments, and the blocks in which any are equal.

    Of the other kernels' masks, which it also has, a compiler makes only what is used.
    """

    def __init__(
        self, queries: Int[Tensor, "rows queries"], keys: Int[Tensor, "rows keys"], *, causal: bool
    ):
        same = segment_mask(queries, keys)
        super().__init__(same & causal_mask(keys.shape[1], keys.device) if causal else same)
        later = 0 if causal else keys.shape[1]  # how many later positions a query attends to
        self.blocks: BlockMask = create_block_mask(
            lambda row, _, query, key: (
                (queries[row, query] == keys[row, key]) & (key <= query + later)
            ),
            *(len(queries), None, queries.shape[1], keys.shape[1]),
            device=queries.device.type,
            BLOCK_SIZE=SIDE,
        )


class FlexCuda(Cuda):
    """A GPU's arithmetic, which attends by FlexAttention where segments alone make the mask.

    Dropout on attention weights and narrow heads are left to the other kernels.
    """

    def mask_of_segments(self, queries: Tensor, keys: Tensor, *, causal: bool = False) -> Mask:
        """A mask made of segments, once for all layers."""
        return SegmentMask(queries, keys, causal=causal)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0
    ) -> Tensor:
        """Equation (1); the output of a query without keys is 0."""
        narrow = min(query.shape[-1], value.shape[-1]) < LEAST_WIDTH
        if dropout or narrow or not isinstance(mask, SegmentMask):
            return super().attend(query, key, value, mask, dropout)
        output: Tensor = flex_attention(query, key, value, block_mask=mask.blocks)
        return output
