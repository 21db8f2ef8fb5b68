"""Set how many threads compute, and run threads that divide the cores among themselves."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Item = TypeVar("Item")
Done = TypeVar("Done")


@contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Compute with this many threads in a `with` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def side_by_side(
    work: Callable[[Item], Done], items: Sequence[Item], workers: int, share: int | None = None
) -> Generator[Done, None, None]:
    """Yield `work(item)` for each item, in order; up to `workers` threads work at the same time.

    Each thread computes on `share` cores; None divides the cores equally. Doing several items
    at the same time is faster than doing one item after another on all cores, except for large
    matrix products. If `share` is all cores, the calling thread does the work.
    """
    workers, threads = max(1, min(workers, len(items))), torch.get_num_threads()
    share = share or max(1, threads // workers)
    if share == threads:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, "regard", torch.set_num_threads, (share,))
    try:
        yield from pool.map(work, items)
    finally:
        try:
            pool.shutdown(cancel_futures=True)
        finally:  # a second Ctrl-C may interrupt `shutdown`
            torch.set_num_threads(threads)
