"""Which pairs of a corpus are copies of earlier ones, found on disk in bounded memory.

A survey writes eight bytes for each pair. They are then gone through part by part: equal pairs have
equal digests, and those are in one part. What is kept of it is one bit a pair.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NO_DIGEST = 0
"""Stands for a pair that is not to be compared."""
_PART = 1_000_000
"""Pairs whose digests are sorted at once, on average: some 50 MB."""
_READ = 2**18


def digest(pair: tuple[str, str]) -> int:
    """Eight bytes that stand for a pair."""
    # No line holds a line feed. Among 36 million pairs, two digests agree once in 28,000 corpora.
    return int.from_bytes(blake2b("\n".join(pair).encode(), digest_size=8).digest())


def mark_repeats(digests: Path) -> Path:
    """Read the digests of all pairs in order, uint64; write a bit for each: is it a repeat?

    Returns the file of bits, for `read_marks`; it is beside the other. Raises OSError.
    """
    pairs = digests.stat().st_size // 8
    bits = np.zeros(-(-pairs // 8), np.uint8)
    parts = -(-pairs // _PART)
    for part in range(parts):
        repeats = _repeats(digests, part, parts)
        np.bitwise_or.at(bits, repeats >> 3, np.uint8(1) << (repeats & 7).astype(np.uint8))
    marks = digests.with_name("repeats")
    marks.write_bytes(bits.data)
    return marks


def read_marks(marks: Path, first: int, count: int) -> NDArray[np.bool_]:
    """Whether each of `count` pairs from number `first` on, from 0, is a repeat."""
    begin, within = divmod(first, 8)
    bits = np.fromfile(marks, np.uint8, (within + count + 7) // 8, offset=begin)
    return np.unpackbits(bits, bitorder="little")[within : within + count].astype(bool)


def _repeats(digests: Path, part: int, parts: int) -> NDArray[np.int64]:
    """The numbers of the pairs of a part that repeat an earlier pair."""
    values, numbers = [], []
    with digests.open("rb") as file:
        first = 0
        while len(read := np.fromfile(file, np.uint64, _READ)):
            mine = np.flatnonzero((read % np.uint64(parts) == part) & (read != NO_DIGEST))
            values.append(read[mine])
            numbers.append(mine + first)
            first += len(read)
    value, number = np.concatenate(values), np.concatenate(numbers)
    order = value.argsort(kind="stable")  # of equal ones the first comes first
    value = value[order]
    return number[order[1:][value[1:] == value[:-1]]]
