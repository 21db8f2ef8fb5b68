"""Measure the cost of a layer: its operations, its memory, and its time."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from statistics import linear_regression
from time import process_time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from regard.complexity import Sizes
from regard.machine.devices import keep_freed_memory
from regard.reproduce.layers import LAYERS

REPEATED, TIMED_FOR = 3, 1.0
"""A forward and a backward pass are made at least REPEATED times, and again until TIMED_FOR seconds
of processor time are over. For each kind of pass, the shortest time counts, because other work of
the machine has delayed the shortest pass least."""


def operations(layer: str, sizes: Sizes) -> int:
    """The floating-point operations of a forward pass over one sequence, as PyTorch counts them.

    PyTorch counts only matrix products, those of attention included, and convolutions.
    """
    counter = FlopCounterMode(display=False)
    with _device(layer), torch.no_grad():
        module, x = _made(layer, sizes)
        with counter:
            module(x)
    return int(counter.get_total_flops())


def peak_memory(layer: str, sizes: Sizes) -> int:
    """The peak memory in bytes of a forward and a backward pass over one sequence.

    The memory of the weights and of the input is not counted.
    """
    with _device(layer):
        module, x = _made(layer, sizes)
        with _Living() as living:
            module(x).sum().backward()
    return living.most


def seconds(layer: str, sizes: Sizes, rows: int = 1) -> tuple[float, float]:
    """Processor seconds of a forward and of a backward pass over `rows` sequences.

    Each time is the shortest of at least REPEATED passes. Memory that a pass frees is kept for the
    next pass.
    """
    # If freed memory went back to the operating system, page faults would take half of the time
    # for long sequences.
    keep_freed_memory()
    torch.manual_seed(1)
    module, x = _made(layer, sizes, rows)
    forward = backward = math.inf
    times, first = 0, process_time()
    while times < REPEATED or process_time() - first < TIMED_FOR:
        times, began = times + 1, process_time()
        total = module(x).sum()
        middle = process_time()
        total.backward()
        ended = process_time()
        forward, backward = min(forward, middle - began), min(backward, ended - middle)
    return forward, backward


def _device(layer: str) -> torch.device:
    """The device on which the operations and the memory of a layer are measured.

    For most layers, it is the meta device, which computes no values. For the recurrent layer, it is
    the CPU, because measuring this layer takes less time there.
    """
    return torch.device("cpu" if layer == "recurrent" else "meta")


def _made(layer: str, sizes: Sizes, rows: int = 1) -> tuple[nn.Module, Tensor]:
    return LAYERS[layer](sizes), torch.randn(rows, sizes.n, sizes.d, requires_grad=True)


class _Living(TorchDispatchMode):
    """Counts bytes that operations allocate: `now` is the number in use, `most` is its peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation, and count the bytes of the storages that it allocates."""
        before = {id(storage) for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            self._count(storage, before)
        return result

    def _count(self, storage: torch.UntypedStorage, before: set[int]) -> None:
        key = id(storage)
        if key in before or key in self._known:
            return
        self._known.add(key)
        size = storage.nbytes()
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def _storages(values: Any) -> list[torch.UntypedStorage]:
    return [one.untyped_storage() for one in tree_leaves(values) if isinstance(one, Tensor)]


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """The exponent of a cost's growth: the slope of log cost over log size, by least squares."""
    return linear_regression([*map(math.log, sizes)], [*map(math.log, costs)]).slope
