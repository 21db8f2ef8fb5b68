"""Translate sentences of many requests together: a queue, and the thread that empties it."""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

BUDGET = 2048
"""A batch has at most this many tokens, including padding to its longest sentence. A sentence with
more tokens is a batch of its own."""
_WAIT = 0.003
"""The thread waits at most this many seconds for a batch to fill."""
_IDLE = 1.0
"""If no sentence comes for this many seconds after a batch, the batcher's `rest` is called."""


class QueueFull(Exception):
    """The queue has reached its limit, or the batcher is closed."""


@dataclass(frozen=True, eq=False)
class _Waiting(Generic[_Item, _Result]):
    item: _Item
    tokens: int
    result: Future[_Result]


class Batcher(Generic[_Item, _Result]):
    """A queue of sentences, and one thread that translates sentences of similar length together.

    Only this thread calls `translate`. If no sentence comes for `idle` seconds after a batch, the
    thread calls `rest` once. `measure` returns the number of tokens of each sentence. The queue
    refuses sentences while it has `most` sentences or more. For this limit, the sentences of one
    request count as at most half of `most`, rounded up, so that a single long request does not keep
    out other requests. Requests take turns: each batch begins with the first waiting sentence of
    the next request. A batch has at most `budget` tokens, padding included, unless it is a single
    sentence. The thread waits at most `wait` seconds for a batch to fill. If the future of a
    waiting sentence is cancelled, the sentence is not translated.
    """

    def __init__(
        self,
        translate: Callable[[list[_Item]], Sequence[_Result]],
        measure: Callable[[Sequence[_Item]], Sequence[int]],
        *,
        most: int,
        budget: int = BUDGET,
        wait: float = _WAIT,
        rest: Callable[[], object] = lambda: None,
        idle: float = _IDLE,
    ):
        self._translate, self._measure = translate, measure
        self._most, self._budget, self._wait = most, budget, wait
        self._rest, self._idle = rest, idle
        self._queue: dict[int, dict[int, _Waiting[_Item, _Result]]] = {}
        """The waiting sentences of each waiting request. The key of a request is its number, and
        requests are in the order of their turns. The key of a sentence is its index in the
        request, from 0."""
        self._requests = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="translate", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of sentences in the queue."""
        with self._changed:
            return sum(map(len, self._queue.values()))

    @property
    def full(self) -> bool:
        """Whether `submit` would raise QueueFull."""
        half = (self._most + 1) // 2
        with self._changed:
            counted = sum(min(half, len(its)) for its in self._queue.values())
            return self._closed or counted >= self._most

    @property
    def alive(self) -> bool:
        """Whether the thread that translates runs."""
        return self._thread.is_alive()

    def submit(self, sentences: Sequence[_Item]) -> list[Future[_Result]]:
        """Add the sentences of one request to the queue; return a future for the result of each.

        If the queue is at its limit or the batcher is closed, no sentence is added and QueueFull is
        raised. A queue below its limit takes all of the sentences, even if it is over the limit
        afterwards: otherwise, a request with many sentences could never be served. A future raises
        the error that `translate` raised for its batch.
        """
        if self.full:  # `full` is tested before `measure`, which is slow, and again with the lock
            raise QueueFull
        lengths = self._measure(sentences)
        futures: list[Future[_Result]] = [Future() for _ in sentences]
        with self._changed:
            if self.full:
                raise QueueFull
            request, given = next(self._requests), zip(sentences, lengths, futures, strict=True)
            if futures:
                self._queue[request] = dict(enumerate(_Waiting(*one) for one in given))
            for place, future in enumerate(futures):
                future.add_done_callback(partial(self._forget, request, place))
            self._changed.notify()
        return futures

    def close(self) -> None:
        """Refuse new sentences, translate those that wait, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _forget(self, request: int, place: int, _: Future[_Result] | None = None) -> None:
        """Take a sentence out of the queue if it is there."""
        with self._changed:
            its = self._queue.get(request, {})
            its.pop(place, None)
            if not its:
                self._queue.pop(request, None)

    def _run(self) -> None:
        while batch := self._next():
            active = [w for w in batch if w.result.set_running_or_notify_cancel()]
            if not active:
                continue
            try:
                results = self._translate([w.item for w in active])
                for waiting, result in zip(active, results, strict=True):
                    waiting.result.set_result(result)
            except BaseException as error:  # the futures raise it; this thread goes on
                for waiting in active:
                    if not waiting.result.done():
                        waiting.result.set_exception(error)
            if not self._comes(self._idle):
                with suppress(Exception):
                    self._rest()

    def _comes(self, seconds: float) -> bool:
        """Wait at most this many seconds; return whether a sentence came or the batcher closed."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._queue) or self._closed, seconds)

    def _next(self) -> list[_Waiting[_Item, _Result]]:
        """Wait for the next batch; it is empty if the batcher is closed and no sentence waits."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed or self._enough(), self._wait)
                batch = self._choose()
                if batch or self._closed:
                    return batch

    def _enough(self) -> bool:
        tokens = itertools.accumulate(one.tokens for _, _, one in self._all())
        return any(count >= self._budget for count in tokens)

    def _all(self) -> Iterator[tuple[int, int, _Waiting[_Item, _Result]]]:
        """All waiting sentences, as tuples (number of request, index in the request, sentence)."""
        for request, its in self._queue.items():
            yield from ((request, place, one) for place, one in its.items())

    def _choose(self) -> list[_Waiting[_Item, _Result]]:
        """Take a batch out: the first sentence of the next request, and others of similar length.

        After the first sentence, the sentences whose lengths are closest to its length are taken,
        as long as the batch stays within `budget` tokens. If lengths are equally close, sentences
        of the same request as the first sentence come before others. Each request has its turn, so
        no sentence waits for ever. If no sentence waits, the batch is empty.
        """
        if not self._queue:
            return []
        turn = next(iter(self._queue))
        self._queue[turn] = self._queue.pop(turn)  # this request now has the last turn
        first = next(iter(self._queue[turn].values()))
        waiting = sorted(
            self._all(), key=lambda one: (abs(one[2].tokens - first.tokens), one[0] != turn)
        )
        chosen: list[_Waiting[_Item, _Result]] = []
        widest = 0
        for request, place, sentence in waiting:
            widest = max(widest, sentence.tokens)
            if chosen and (len(chosen) + 1) * widest > self._budget:
                break
            chosen.append(sentence)
            self._forget(request, place)
        return chosen
