"""A granule of steps on a GPU: one step is recorded as a CUDA graph, and then replayed.

A step of decoding launches some hundred small kernels, for which the host takes longer than the
GPU. A graph launches them together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regard.granules import Granule, Value, overwrite, tensors
from regard.machine.devices import is_out_of_memory

WORTH_RECORDING = 4
"""The fewest steps for which one is recorded; to record it takes about as long as to launch two."""


class RecordedSteps(Granule):
    """A granule of at most `steps` steps, all but the first of which replay one recording.

    The first step is not recorded: in it, libraries prepare what they cannot prepare while a graph
    is recorded. Once a recording has worked, the first step is recorded as well. Steps are made one
    by one where they cannot be recorded: on a CPU; in a search whose steps change a shape or a
    number on the host; and always after a recording has failed in spite of an unrecorded step.
    """

    def __init__(self, steps: int):
        super().__init__(steps)
        self._works, self._warm = True, False
        self._refused: Any = None
        """The owner of the steps that could not overwrite a value."""
        self._stream: torch.cuda.Stream | None = None
        self._pool: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, step: Callable[[Value], Value], value: Value, times: int) -> Value:
        """Make `times` steps from `value`, which may be overwritten; return the last result."""
        owner = getattr(step, "__self__", step)
        pays = times >= WORTH_RECORDING and owner is not self._refused and self.can_record(value)
        if pays and self._warm and self._replayed(step, value, times):
            return value
        value, times = step(value), times - 1
        if pays and self._works:
            if self._replayed(step, value, times):
                return value
            self._refused = owner
        return super().run(step, value, times)

    def _replayed(self, step: Callable[[Value], Value], value: Value, times: int) -> bool:
        """Overwrite `value` by the result of `times` steps; False if steps cannot be recorded."""
        try:
            replay = self.record(step, value)
        except ValueError:  # of `overwrite`
            return False
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self._works, self._warm = self._warm, False
            return False
        self._warm = True
        for _ in range(times):
            replay()
        return True

    def can_record(self, value: Any) -> bool:
        """Whether all tensors in a value are on a GPU."""
        return all(x.is_cuda for x in tensors(value))

    def record(self, step: Callable[[Value], Value], value: Value) -> Callable[[], None]:
        """A function that overwrites `value` with `step(value)`: it replays a recorded step.

        Raises ValueError if `step` cannot overwrite `value`, RuntimeError if PyTorch cannot record
        the step. This object keeps the last recording, because the GPU may still replay it; all
        recordings use the same memory. The stream that records computes nothing, so recording does
        not wait for the GPU; `torch.cuda.graph` would wait, and free all unused memory.
        """
        if self._stream is None:
            self._stream, self._pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                overwrite(step, value)
            finally:
                graph.capture_end()
        self._graph = graph
        return graph.replay
