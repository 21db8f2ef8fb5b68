"""Divide sentences into batches, and the batches among threads, copies of this process, or streams.

Sentences of similar length share a batch, so that there is little padding.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from regard.equations import Together
from regard.hypotheses import Hypothesis
from regard.machine.copies import Copies
from regard.machine.memory import free_bytes
from regard.machine.threads import side_by_side

if TYPE_CHECKING:
    from regard.arithmetic.few_rows import FewRows

SMALL_BATCH = 512
"""The limit of source tokens in a batch, padding included, is lowered to give more workers some
work, but not below this number. For `FewRows`, `FewRowsLimits.tokens` takes its place."""
WORKERS = 4
"""On a CPU, threads decode at most this many batches at the same time. If a batch needs only one
core, each core decodes a batch instead."""
COPY_BYTES = 2**30
"""The free memory, in bytes, that each copy of this process needs. A copy with the paper's base
model takes 0.4 to 0.7 GB."""

Found = list[list[Hypothesis]]
"""The hypotheses of each sentence, the best first."""


class Division(NamedTuple):
    """The division of batches among streams of a GPU, copies of this process, or else threads."""

    batches: list[list[int]]
    few: list[FewRows]
    """One `FewRows` (`arithmetic.few_rows`) for each model; its compiled loops compute the model's
    layers. The list is empty if the modules of the models compute the layers."""
    loops: bool
    """Whether equations are computed by compiled loops (`arithmetic.one_core`)."""
    copies: int
    """The number of copies of this process; 0 if threads or streams decode."""
    workers: int
    share: int
    """The number of cores on which each thread or copy computes."""
    streams: Together | None

    def run(
        self, decode: Callable[[list[int]], Found | None]
    ) -> Generator[Found | None, None, None]:
        """Yield the result of `decode` for each batch, in the order of the batches."""
        if self.streams:
            return self.streams.map(decode, self.batches)
        if self.copies:
            return _by_copies(decode, self.batches, self.copies)
        return side_by_side(decode, self.batches, self.workers, self.share)


def usual_workers() -> int:
    """The number of batches to decode at the same time.

    It is at most `WORKERS`, and leaves few cores idle if the cores are divided equally.
    """
    threads = torch.get_num_threads()
    return threads // -(-threads // WORKERS)


def useful_copies(batches: int) -> int:
    """The number of copies of this process that should decode this number of batches.

    It is as large as the batches, the cores and the free memory (`COPY_BYTES`) allow, but 0 if
    there would be only one copy, or if half of the cores or more would be idle.
    """
    threads, room = torch.get_num_threads(), free_bytes(torch.device("cpu")) // COPY_BYTES
    copies = min(batches, threads, room)
    return copies if copies > max(1, threads // 2) else 0


def _by_copies(
    decode: Callable[[list[int]], Found | None], batches: Sequence[list[int]], count: int
) -> Generator[Found | None, None, None]:
    """Decode each batch on one core: in copies of this process, or in threads if `Copies` fails."""
    try:
        copies = Copies(decode, batches, count, partial(torch.set_num_threads, 1))
    except OSError:
        yield from side_by_side(decode, batches, count, 1)
        return
    with closing(copies):
        yield from copies


def by_length(
    sources: Sequence[Sequence[int]], slots: int, workers: int, least: int = SMALL_BATCH
) -> list[list[int]]:
    """Divide sentences into batches of at most `slots` tokens, the longest sentences first.

    Padding counts as tokens. A sentence of more than `slots` tokens is a batch of its own. Returns
    the batches as lists of indices into `sources`. To give all workers about equally much to
    decode, the limit `slots` is lowered, but not to less than `least`.
    """
    total = sum(map(len, sources))
    batches = max(1, -(-total // (slots * workers)) * workers)
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    even = min(slots, max(least, total // batches))
    while len(found := list(_cut(order, sources, even))) > batches and even < slots:
        even = min(slots, even * 21 // 20 + 1)  # padding has made too many batches: raise the limit
    return found


def _cut(order: Sequence[int], sources: Sequence[Sequence[int]], slots: int) -> Iterator[list[int]]:
    """Divide sentences into batches of at most `slots` tokens; each batch is a list of indices.

    `order` has the indices of the sentences, the longest first. Batches keep this order.
    """
    batch: list[int] = []
    width = 0
    for i in order:
        width = width or len(sources[i])
        if (len(batch) + 1) * width > slots and batch:
            yield batch
            batch, width = [], len(sources[i])
        batch.append(i)
    if batch:
        yield batch
