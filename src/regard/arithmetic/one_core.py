"""Where a thread has one core to itself, and may compute by `regard.arithmetic.loops`.

PyTorch divides each operation among the cores, and goes over all numbers once for each; a loop does
what lies between two matrix products in one go, on one core.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

_LOOPS: ContextVar[bool] = ContextVar("loops", default=False)


@cache
def can_use_loops() -> bool:
    """Whether there are any: they are loaded, in a quarter of a second; or compiled, once, in ten.

    Numba refuses a NumPy that is newer than it knows. Then nothing but speed is lost.
    """
    try:
        for name in (
            "adam",
            "attention",
            "cross_entropy",
            "int8",
            "linear",
            "packed",
            "residual",
            "search",
        ):
            import_module(f"regard.arithmetic.loops.{name}")
    except (ImportError, OSError):
        return False
    return True


@contextmanager
def loops(wanted: bool = True) -> Iterator[None]:
    """In here, and in this thread, they are used: if wanted, if it has one core, if there are any.

    Only for tensors on the CPU.
    """
    token = _LOOPS.set(wanted and torch.get_num_threads() == 1 and can_use_loops())
    try:
        yield
    finally:
        _LOOPS.reset(token)


def by_loops() -> bool:
    """Whether this thread is to use them."""
    return _LOOPS.get()


def array(x: Tensor) -> NDArray[Any]:
    """The numbers of a tensor on the CPU, as a loop reads and writes them: bf16 as its 16 bits."""
    x = x.detach()
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def rows(x: Tensor) -> NDArray[Any]:
    """The same as a matrix, to read: the last dimension in rows, all others one below the other."""
    return array(x.reshape(-1, x.shape[-1]).contiguous())


def rows_of(x: Tensor) -> NDArray[Any]:
    """The same to write, of a tensor whose numbers lie together."""
    return array(x.view(-1, x.shape[-1]))
