"""Who may ask, and how often."""

import hashlib
import hmac
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from regard.errors import DataError
from regard.files.lines import read_lines

MOST_CLIENTS = 10_000
"""Clients whose requests are counted at a time."""


class Keys:
    """API keys, of which only digests are kept."""

    def __init__(self, keys: Iterable[str]):
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: Path) -> Self:
        """From a file of one key a line, # before a comment; raises DataError."""
        lines = (line.partition("#")[0].strip() for line in read_lines(path))
        keys = cls(line for line in lines if line)
        if not keys:
            raise DataError("no API key in it: write one a line", path)
        return keys

    def __len__(self) -> int:
        return len(self._digests)

    def know(self, key: str) -> bool:
        """Whether it is one of them; how long that takes tells nothing about them."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class Allowance:
    """So many requests a minute for each client, saved up to a minute's."""

    def __init__(self, a_minute: int, clock: Callable[[], float] = time.monotonic):
        self._a_minute, self._clock = a_minute, clock
        self._left: dict[str, tuple[float, float]] = {}  # by client: requests left, and when

    def wait(self, client: str) -> float:
        """0, or the seconds after which the client may ask again."""
        left = self._saved(client)
        return 0.0 if left >= 1 else (1 - left) * 60 / self._a_minute

    def take(self, client: str) -> float:
        """The same, and if it is 0, one request is counted."""
        wait, left = self.wait(client), self._saved(client)
        self._left.pop(client, None)
        self._left[client] = (left if wait else left - 1, self._clock())
        if len(self._left) > MOST_CLIENTS:  # the one that has asked least recently
            del self._left[next(iter(self._left))]
        return wait

    def _saved(self, client: str) -> float:
        now = self._clock()
        left, before = self._left.get(client, (float(self._a_minute), now))
        return min(self._a_minute, left + (now - before) * self._a_minute / 60)
