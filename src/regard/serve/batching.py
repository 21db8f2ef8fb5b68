"""Sentences of many requests, translated together: a queue and the thread that empties it."""

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Found = TypeVar("Found")

BUDGET = 2048
"""Tokens translated together, padding to the longest sentence included."""
WAIT = 0.003
"""Seconds that a first sentence waits for others."""


class QueueFull(Exception):
    """As many sentences wait as may; or the batcher is closed."""


@dataclass(frozen=True, eq=False)
class _Waiting(Generic[Asked, Found]):
    asked: Asked
    tokens: int
    found: Future[Found]


class Batcher(Generic[Asked, Found]):
    """One thread that translates what waits, sentences of like length together.

    This thread alone calls `translate`. `measure` tells the tokens of sentences. A sentence whose
    future is cancelled before its turn is never translated.
    """

    def __init__(
        self,
        translate: Callable[[list[Asked]], Sequence[Found]],
        measure: Callable[[Sequence[Asked]], Sequence[int]],
        *,
        most: int,
        budget: int = BUDGET,
        wait: float = WAIT,
    ):
        self._translate, self._measure = translate, measure
        self._most, self._budget, self._wait = most, budget, wait
        self._queue: dict[int, _Waiting[Asked, Found]] = {}  # by number, and so by age
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="translate", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Sentences whose turn has not come."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether `submit` would refuse."""
        return self._closed or len(self._queue) >= self._most

    def submit(self, sentences: Sequence[Asked]) -> list[Future[Found]]:
        """What will be found of each sentence; raises QueueFull.

        All the sentences of a request are taken or none, so that a long one has its chance too.
        """
        if self.full:  # before any work is done for it
            raise QueueFull
        lengths = self._measure(sentences)
        futures: list[Future[Found]] = [Future() for _ in sentences]
        with self._changed:
            if self.full:
                raise QueueFull
            for sentence, length, found in zip(sentences, lengths, futures, strict=True):
                number = next(self._numbers)
                self._queue[number] = _Waiting(sentence, length, found)
                found.add_done_callback(partial(self._forget, number))
            self._changed.notify()
        return futures

    def close(self) -> None:
        """Refuse what comes, translate what waits, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _forget(self, number: int, _: Future[Found]) -> None:
        self._queue.pop(number, None)

    def _run(self) -> None:
        while batch := self._next():
            going = [w for w in batch if w.found.set_running_or_notify_cancel()]
            if not going:
                continue
            try:
                results = self._translate([w.asked for w in going])
                for waiting, found in zip(going, results, strict=True):
                    waiting.found.set_result(found)
            except Exception as error:  # it belongs to those who wait, and the thread goes on
                for waiting in going:
                    if not waiting.found.done():
                        waiting.found.set_exception(error)

    def _next(self) -> list[_Waiting[Asked, Found]]:
        """The next batch; an empty one once closed and everything is done."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed or self._enough(), self._wait)
                batch = self._choose()
                if batch or self._closed:
                    return batch

    def _enough(self) -> bool:
        return sum(w.tokens for w in list(self._queue.values())) >= self._budget

    def _choose(self) -> list[_Waiting[Asked, Found]]:
        """The oldest, so that none waits for ever, and those nearest to its length."""
        waiting = list(self._queue.items())
        if not waiting:
            return []
        oldest = waiting[0][1]
        waiting.sort(key=lambda item: abs(item[1].tokens - oldest.tokens))
        chosen: list[_Waiting[Asked, Found]] = []
        widest = 0
        for number, sentence in waiting:
            widest = max(widest, sentence.tokens)
            if chosen and (len(chosen) + 1) * widest > self._budget:
                break
            chosen.append(sentence)
            self._queue.pop(number, None)
        return chosen
