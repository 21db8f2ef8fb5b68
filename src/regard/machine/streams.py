"""Threads that give work to a GPU at the same time, each in a stream of its own.

A GPU does the work of one stream in order, and the work of several streams at the same time. While
one thread prepares work for its stream, or waits for the results, the GPU does the work of the
other streams.
"""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import torch

from regard.machine.devices import begin_stream, wait_for_stream
from regard.machine.threads import Done, Item


class Streams:
    """`count` threads, each with a stream of its own on this device; on a CPU, only threads."""

    def __init__(self, device: torch.device, count: int):
        self.count, self._device = count, device
        self._pool = ThreadPoolExecutor(count, "regard", begin_stream, (device,))

    def map(
        self, work: Callable[[Item], Done], items: Sequence[Item]
    ) -> Generator[Done, None, None]:
        """Yield `work(item)` for each item, in order.

        `work` must not return tensors on the device, which may still be computing them. If an item
        fails, or the generator is closed, items that have not begun are left out, and this method
        waits for the items that have begun.
        """
        wait_for_stream(self._device)  # then all threads can use what the caller's stream computed
        futures = [self._pool.submit(work, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            wait([future for future in futures if not future.cancel()])
