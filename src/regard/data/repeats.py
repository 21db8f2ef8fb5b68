"""Find the pairs of a corpus that repeat earlier ones, by files on disk and in bounded memory.

The survey writes an eight-byte digest of each pair. The file of digests is then read once for each
of several parts, into which the digests fall by their value: equal pairs have equal digests, so
they are in the same part. The result is one bit for each pair.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NO_DIGEST = 0
"""The digest of a pair that is not compared with any other."""
_PART = 1_000_000
"""Digests in a part, on average, which are sorted together: about 50 MB of memory."""
_READ = 2**18
"""Digests that are read from the file at once."""


def digest(pair: tuple[str, str]) -> int:
    """The digest of a pair, eight bytes as an integer."""
    # No line holds a line feed, so the joined text is unambiguous. In a corpus of 36 million pairs,
    # the chance that two different ones have equal digests is 1 in 28,000.
    return int.from_bytes(blake2b("\n".join(pair).encode(), digest_size=8).digest())


def mark_repeats(digests: Path) -> Path:
    """Write one bit for each pair: whether it repeats an earlier one.

    `digests` is a file of the digests of all pairs, in order, as uint64. The file of bits is
    written beside it and returned; `read_marks` reads it. Raises OSError.
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
    """Whether each of `count` pairs is a repeat, from pair number `first`, which counts from 0."""
    begin, within = divmod(first, 8)
    bits = np.fromfile(marks, np.uint8, (within + count + 7) // 8, offset=begin)
    return np.unpackbits(bits, bitorder="little")[within : within + count].astype(bool)


def _repeats(digests: Path, part: int, parts: int) -> NDArray[np.int64]:
    """The numbers of the pairs in a part that repeat an earlier pair."""
    values, numbers = [], []
    with digests.open("rb") as file:
        first = 0
        while len(read := np.fromfile(file, np.uint64, _READ)):
            mine = np.flatnonzero((read % np.uint64(parts) == part) & (read != NO_DIGEST))
            values.append(read[mine])
            numbers.append(mine + first)
            first += len(read)
    value, number = np.concatenate(values), np.concatenate(numbers)
    order = value.argsort(kind="stable")  # among equal digests, the earliest pair comes first
    value = value[order]
    return number[order[1:][value[1:] == value[:-1]]]
