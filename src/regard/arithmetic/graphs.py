"""Steps of a search on a GPU: one step is recorded as a CUDA graph, which is then replayed.

A granule is a group of steps between which the host does not look at results (`regard.granules`).
A step launches hundreds of small kernels, and the host takes longer to launch them than the GPU
takes to compute them. A graph launches all of them together.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from regard.granules import Granule, StepRules, Value
from regard.machine.devices import GRAPHS, is_out_of_memory

_log = logging.getLogger("regard.graphs")
WORTH_RECORDING = 4
"""A step is recorded only if a granule has at least this many steps: to record a step takes about
as long as to launch two steps."""


class RecordedSteps(threading.local, Granule):
    """A granule of at most `steps` steps, which replays a recording of one step.

    Each thread has recordings of its own, in memory of its own, because the threads' streams
    compute at the same time.

    Each granule makes a new recording. Before the first recording with some number of candidates
    (the continuations of a sentence that a step ranks highest), one step is made without a
    recording. In this step, libraries prepare what they cannot prepare while a graph is recorded,
    and kernels are compiled for this number. After a recording has worked, later granules with the
    same number of candidates replay all of their steps. Steps are made one by one, without a
    recording,

    - if a granule has fewer steps than `WORTH_RECORDING`;
    - on a CPU;
    - in a search whose steps `overwrite` refuses, for example because they change a tensor's shape;
    - in a thread in which PyTorch has failed to record a step, although one step was made without
      a recording directly before.
    """

    def __init__(self, steps: int):
        super().__init__(steps)
        self._works = True
        self._warm = set[int]()
        """The numbers of candidates with which steps were recorded. The set is emptied when PyTorch
        fails to record a step."""
        self._refused: Any = None
        """The rules of the last search whose steps could not be recorded; None if there is none."""
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, rules: StepRules[Value], value: Value, times: int) -> Value:
        """Make `times` steps from `value`, which may be overwritten; return the last result."""
        pays = times >= WORTH_RECORDING and rules is not self._refused and self.can_record(value)
        if pays and rules.count in self._warm and self._replayed(rules, value, times):
            return value
        value, times = rules.unseen_step(value), times - 1
        if pays and self._works:
            if self._replayed(rules, value, times):
                return value
            self._refused = rules
        return super().run(rules, value, times)

    def _replayed(self, rules: StepRules[Value], value: Value, times: int) -> bool:
        """Overwrite `value` by the result of `times` steps; return False if recording fails."""
        try:
            replay = self.record(rules.unseen_step, value)
        except ValueError:  # `overwrite` refuses the step, for example because it changes a shape
            return False
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            if rules.count not in self._warm:
                self._works = False
                _log.warning("the GPU is slower: it cannot record steps of a search: %.200s", error)
            self._warm.clear()
            return False
        self._warm.add(rules.count)
        for _ in range(times):
            replay()
        return True

    def can_record(self, value: Any) -> bool:
        """Whether all tensors in a value are on a GPU."""
        return all(x.is_cuda for x in _tensors(value))

    def record(self, step: Callable[[Value], Value], value: Value) -> Callable[[], None]:
        """Record a step; return a function that replays it, and so overwrites `value`.

        The new `value` is `step(value)`. Raises ValueError if `overwrite` refuses the step, and
        RuntimeError if PyTorch cannot record the step. This object keeps the last recording,
        because the GPU may still replay it. All recordings of a thread use the same memory until
        PyTorch fails to record a step. The stream that records computes nothing, so recording does
        not wait for the GPU. `torch.cuda.graph` is not used, because it would wait for the GPU and
        free unused memory.
        """
        if self._stream is None:
            # PyTorch has 32 streams of each priority, and hands them out in turn, again and again.
            # No thread computes in a stream of this priority, so a recording contains no work of
            # another thread.
            self._stream = torch.cuda.Stream(priority=-1)
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        try:
            with GRAPHS, torch.cuda.stream(self._stream):
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    overwrite(step, value)
                finally:
                    graph.capture_end()
                self._graph = graph  # this destroys the previous graph, while the lock is held
        except BaseException as error:
            # PyTorch refuses a memory pool whose last graph is destroyed, and may refuse a pool in
            # which a recording failed. The next recording then makes a new stream and a new pool.
            if self._graph is None or not isinstance(error, ValueError):
                self._stream = None
            raise
        return graph.replay


def overwrite(step: Callable[[Value], Value], value: Value) -> None:
    """Overwrite the tensors of `value` with those of `step(value)`.

    The next step then reads and writes the same memory, as a recording of the step (a CUDA graph)
    requires. Raises ValueError, and overwrites nothing, if the step changes how many tensors there
    are, the shape or dtype of a tensor, or a number that is not in a tensor. It does the same if
    tensors to overwrite share memory or are not contiguous.
    """
    old, new = list(_leaves(value)), list(_leaves(step(value)))
    pairs = [pair for pair in zip(old, new, strict=True) if pair[0] is not pair[1]]
    changed = [(a, b) for a, b in pairs if isinstance(a, Tensor)]
    _refuse_changes(pairs, changed)
    # A new tensor that shares memory with an old tensor is copied first, because the loop below
    # overwrites the old tensors.
    held = {_memory(a) for a in _tensors(value)}
    apart = [b.clone() if _memory(b) in held else b for _, b in changed]
    for (a, _), b in zip(changed, apart, strict=True):
        a.copy_(b)


def _refuse_changes(pairs: list[tuple[Any, Any]], changed: list[tuple[Tensor, Tensor]]) -> None:
    """Raise ValueError if, in some pair, the new value cannot be written over the old value.

    Each of `pairs` is an old and a new value; `changed` has only the pairs of tensors.
    """
    if any(a != b for a, b in pairs if not isinstance(a, Tensor)):
        raise ValueError("the step changes a number that is not in a tensor")
    if any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in changed):
        raise ValueError("the step changes the shape of a tensor")
    written = [_memory(a) for a, _ in changed if a.numel()]
    if len(set(written)) < len(written) or not all(a.is_contiguous() for a, _ in changed):
        raise ValueError("tensors, or entries of one, share memory")


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in a value, for example in a model's state or in the beams of a search."""
    return (leaf for leaf in _leaves(value) if isinstance(leaf, Tensor))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield all tensors in a value, at any depth, and all objects without attributes (numbers)."""
    inner = value if isinstance(value, tuple) else getattr(value, "__dict__", {}).values()
    if isinstance(value, Tensor) or not (inner or isinstance(value, tuple)):
        yield value
    else:
        for one in inner:
            yield from _leaves(one)


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()
