"""Dropout masks on a CPU (§5.4).

PyTorch draws one random number for each element, which costs more than the matrix products of a
small model. Here 64 random bits decide four elements, so the probability of dropping an element is
a multiple of 1/65536. The compiled loop of Add & Norm draws its own mask, from a seed.
"""

import torch
from torch import Tensor


def keep_mask(x: Tensor, dropout: float, generator: torch.Generator | None) -> Tensor:
    """A mask of the shape of x: 0 with probability `dropout`, else 1.

    The probability is rounded to a multiple of 1/65536. Without a generator, PyTorch's default one
    is used.
    """
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64)
    words.random_(-(2**63), None, generator=generator)
    quarters = words.view(torch.int16)[: x.numel()]
    mask = torch.empty(x.numel(), dtype=x.dtype)
    return torch.ge(quarters, threshold(dropout) - 2**15, out=mask).view(x.shape)


def threshold(dropout: float) -> int:
    """How many of the 65536 values of 16 random bits drop an element: at most 65535."""
    return min(round(dropout * 2**16), 2**16 - 1)


def draw_seed(generator: torch.Generator | None) -> int:
    """A seed from which a loop draws the masks of one operation."""
    return int(torch.randint(2**63 - 1, (), generator=generator))
