"""Whether a thread computes by the loops of `regard.loops`: where it has one core to itself.

PyTorch divides an operation among cores, but goes over the numbers once for each operation; a loop
does what lies between two matrix products in one go, on one core.
"""

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
    """Whether there are any; they are loaded, or compiled where it is the first time.

    Numba refuses a NumPy that is newer than it knows. Nothing but time is lost then.
    """
    try:
        for name in ("attention", "cross_entropy", "linear", "packed", "residual", "search"):
            import_module(f"regard.loops.{name}")
    except ImportError:
        return False
    return True


def use_loops() -> None:
    """From here on, in this thread, if it has one core and there are any."""
    _LOOPS.set(torch.get_num_threads() == 1 and can_use_loops())


def by_loops() -> bool:
    """Whether this thread is to use them."""
    return _LOOPS.get()


def array(x: Tensor) -> NDArray[Any]:
    """The numbers of a tensor on the CPU, as a loop reads and writes them: bf16 as its 16 bits."""
    x = x.detach()
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def rows(x: Tensor) -> NDArray[Any]:
    """The same as a matrix: the last dimension in rows, all others one below the other."""
    return array(x.reshape(-1, x.shape[-1]))
