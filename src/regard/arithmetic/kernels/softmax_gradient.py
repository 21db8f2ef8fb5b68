"""A kernel for a GPU: the gradient of the loss with respect to the logits, without its last term.

The kernel reads the logits twice, and writes the gradient once, in place of the logits. The term
that it leaves out, -epsilon / V, comes from label smoothing: see regard.arithmetic.cross_entropy.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

_LOGITS, _WARPS = 8192, 8
"""A program reads `_LOGITS` logits together. These two numbers were the fastest of 24 combinations
on an H200."""


def softmax_gradient_kernel(
    logits: Float[Tensor, "tokens vocabulary"], labels: Int[Tensor, "tokens 1"], smoothing: float
) -> tuple[Float[Tensor, "tokens 1"], Float[Tensor, "tokens 1"]]:
    """Turn logits into softmax - (1 - smoothing) * onehot, in place.

    In memory, the logits of a row must be side by side; rows may be further apart. Returns each
    label's logit and log-probability, both in fp32.
    """
    tokens, vocabulary = logits.shape
    right = logits.new_empty(tokens, 1, dtype=torch.float32)
    log_p = torch.empty_like(right)
    _softmax_gradient[(tokens,)](
        logits, labels.contiguous(), right, log_p, vocabulary, logits.stride(0), 1 - smoothing,
        _LOGITS, num_warps=_WARPS,
    )  # fmt: skip
    return right, log_p


@triton.jit  # type: ignore[untyped-decorator]
def _softmax_gradient(  # type: ignore[no-untyped-def]  # Triton knows no Python types
    logits, labels, right, log_p,
    vocabulary: tl.constexpr, of_row: tl.constexpr, confidence: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """One program computes one row, in blocks of `size` logits; `of_row` is the stride of rows."""
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * of_row
    label = tl.load(labels + row)
    chosen = tl.load(start + label).to(tl.float32)
    top, total = float("-inf"), 0.0  # the largest logit so far; the sum of exp(logit - top)
    for first in range(0, vocabulary, size):
        token = first + tl.arange(0, size)
        x = tl.load(start + token, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), axis=0)
        top = new
    tl.store(right + row, chosen)
    tl.store(log_p + row, chosen - top - tl.log(total))
    for first in range(0, vocabulary, size):
        token = first + tl.arange(0, size)
        x = tl.load(start + token, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
        p = tl.exp(x - top) / total
        p = tl.where(token == label, p - confidence, p)
        tl.store(start + token, p, mask=token < vocabulary)
