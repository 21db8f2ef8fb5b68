"""A kernel for a GPU, which computes a `Summary` of all logits in one pass over them.

PyTorch's operations would read and write the logits several times. `regard.arithmetic.ranking`
defines a `Summary`. This module imports Triton, which is installed with PyTorch for CUDA on Linux.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

TOKENS = 2048
"""A program reads the logits of this many tokens together."""


def summary_kernel(
    logits: Float[Tensor, "rows vocabulary"], block: int
) -> tuple[Float[Tensor, "rows blocks"], Float[Tensor, " rows"]]:
    """The largest logit of each block of tokens, and each row's log-sum-exp; both are fp32.

    `block` is the number of tokens in a block, a power of 2 up to `TOKENS`. A row of -inf has the
    log-sum-exp 0.
    """
    rows, vocabulary = logits.shape
    blocks = -(-vocabulary // block)
    maxima = logits.new_empty(rows, blocks, dtype=torch.float32)
    totals = logits.new_empty(rows, dtype=torch.float32)
    _summarize[(rows,)](logits.contiguous(), maxima, totals, vocabulary, blocks, block)
    return maxima, totals


# All sizes are constants, so Triton compiles the kernel again for each vocabulary. Variables would
# not save all of these compilations: Triton also compiles a kernel again if a variable was a
# multiple of 16 and no longer is, or the other way round.
@triton.jit  # type: ignore[untyped-decorator]
def _summarize(  # type: ignore[no-untyped-def]  # Triton knows no Python types
    logits,
    maxima,
    totals,
    vocabulary: tl.constexpr,
    blocks: tl.constexpr,
    size: tl.constexpr,
    at_once: tl.constexpr = TOKENS,
):
    """One program reads one row, in blocks of `size` tokens."""
    some: tl.constexpr = at_once // size  # the number of blocks that are read together
    row = tl.program_id(0).to(tl.int64)
    block, within = tl.arange(0, some), tl.arange(0, size)
    top, total = float("-inf"), 0.0  # the largest logit so far; the sum of exp(logit - top)
    for first in range(0, blocks, some):
        token = (first + block)[:, None] * size + within[None, :]
        place = logits + row * vocabulary + token
        x = tl.load(place, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
        largest = tl.max(x, axis=1)
        tl.store(maxima + row * blocks + first + block, largest, mask=first + block < blocks)
        new = tl.maximum(top, tl.max(largest, axis=0))
        base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(top - base) + tl.sum(tl.sum(tl.exp(x - base), axis=1), axis=0)
        top = new
    tl.store(totals + row, tl.where(top == float("-inf"), 0.0, top + tl.log(total)))
