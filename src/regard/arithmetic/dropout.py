"""Dropout (§5.4) where no norm comes after it, and on a CPU what all its masks come from.

There PyTorch draws masks one number at a time, which costs more than the matrix products of a small
model; here one call draws 64 random bits for four elements, or a seed for a loop that draws them,
so that the probability is a multiple of 1/65536.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.arithmetic.device import on_cpu

_GENERATOR: ContextVar[torch.Generator | None] = ContextVar("masks", default=None)


def drop(x: Float[Tensor, "*shape"], dropout: float) -> Float[Tensor, "*shape"]:
    """Dropout(x); `dropout` is the probability of dropping an element."""
    if not on_cpu(x) or dropout == 0.0:
        return F.dropout(x, dropout)
    return x * kept(x, dropout) / (1 - dropout)


def kept(x: Tensor, dropout: float) -> Tensor:
    """A mask like x: 0 with the given probability (to 1/65536), else 1."""
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64)
    words.random_(-(2**63), None, generator=_GENERATOR.get())
    halves = words.view(torch.int16)[: x.numel()]
    mask = torch.empty(x.numel(), dtype=x.dtype)
    return torch.ge(halves, threshold(dropout) - 2**15, out=mask).view(x.shape)


def threshold(dropout: float) -> int:
    """How many of 65536 random numbers drop an element; not all, since that is no 16-bit number."""
    return min(round(dropout * 2**16), 2**16 - 1)


def seed() -> int:
    """What the masks of one operation by loops follow from."""
    return int(torch.randint(2**63 - 1, (), generator=_GENERATOR.get()))


@contextmanager
def masks_from(seed: int) -> Iterator[None]:
    """In here, and in this thread alone, masks follow from the seed, not PyTorch's generator."""
    token = _GENERATOR.set(torch.Generator().manual_seed(seed))
    try:
        yield
    finally:
        _GENERATOR.reset(token)
