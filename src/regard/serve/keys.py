"""API keys, and the limit of requests for each client."""

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

from regard.errors import DataError
from regard.files.lines import read_lines

MOST_CLIENTS = 10_000
"""The requests of at most this many clients are counted; if there are more, the client whose last
request is the oldest is forgotten."""


class Keys:
    """API keys; only their digests are stored."""

    def __init__(self, keys: Iterable[str]):
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file with one key on each line.

        A comment begins with # at the start of a line or after a blank; a line may have no key.
        Raises DataError if the file cannot be read or has no key.
        """
        lines = (re.split(r"(?:^|\s)#", line)[0].strip() for line in read_lines(path))
        keys = cls(line for line in lines if line)
        if not keys:
            raise DataError("has no API key: write one per line", path)
        return keys

    def __len__(self) -> int:
        return len(self._digests)

    def accepts(self, key: str) -> bool:
        """Whether the key is valid; the time of the check reveals nothing about valid keys."""
        digest = _digest(key)
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class Allowance:
    """A limit for each client: `a_minute` requests at once, then `a_minute` more per minute.

    So a client may make up to twice `a_minute` requests in its first minute. `clock` returns the
    time in seconds. The name of a client may be an API key, so only digests of names are stored.
    """

    def __init__(self, a_minute: int, clock: Callable[[], float] = time.monotonic):
        self._a_minute, self._clock = a_minute, clock
        # For each client, the requests left after its last request, and the time of that request.
        self._left: dict[bytes, tuple[float, float]] = {}

    def wait(self, client: str) -> float:
        """Seconds until the client may make a request; 0 if it may now."""
        left = self._saved(client)
        return 0.0 if left >= 1 else (1 - left) * 60 / self._a_minute

    def take(self, client: str) -> float:
        """Return `wait(client)`; if this is 0, count a request of the client."""
        wait, left, known = self.wait(client), self._saved(client), _digest(client)
        self._left.pop(known, None)
        self._left[known] = (left if wait else left - 1, self._clock())
        if len(self._left) > MOST_CLIENTS:  # forget the client whose last request is the oldest
            del self._left[next(iter(self._left))]
        return wait

    def _saved(self, client: str) -> float:
        """The number of requests that the client may make now, which may be a fraction."""
        now = self._clock()
        left, before = self._left.get(_digest(client), (float(self._a_minute), now))
        return min(self._a_minute, left + (now - before) * self._a_minute / 60)
