"""Work side by side on the cores of one machine."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Done = TypeVar("Done")


def side_by_side(
    work: Callable[[Item], Done], items: Sequence[Item], workers: int, share: int | None = None
) -> Iterator[Done]:
    """What `work` gives of each item, in order.

    Several are worked on at once, by threads with a share of the cores each, an equal one if None:
    what is not a large matrix product scales better so.
    """
    workers, threads = max(1, min(workers, len(items))), torch.get_num_threads()
    share = share or threads // workers
    if share == threads:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, "regard", torch.set_num_threads, (share,))
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
