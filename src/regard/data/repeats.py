"""Find the pairs of a corpus that repeat an earlier pair, in limited memory, with files on disk.

The survey writes an eight-byte digest of each pair to a file. Equal pairs have equal digests; with
--mix, this holds only for pairs of the same file. The digests are put into parts according to
their values, so equal digests are in the same part. The file of digests is read once for each part.
The result is one bit for each pair.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NO_DIGEST = 0
"""The digest of a pair that is not compared with any other."""
_PART = 1_000_000
"""On average, a part has at most this many digests. A part is sorted in about 50 MB of memory."""
_READ = 2**18
"""Number of digests that are read from the file at once."""


def digest(pair: tuple[str, str], number: int = 0) -> int:
    """The eight-byte digest of a pair and a number, for instance the number of the pair's file."""
    # No line holds a line feed, so the joined text is unambiguous. In a corpus of 36 million pairs,
    # the probability that two different pairs have equal digests is 1 in 28,000.
    text = "\n".join((*pair, str(number)))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def mark_repeats(digests: Path) -> Path:
    """Write one bit for each pair of a corpus: whether the pair repeats an earlier pair.

    `digests` is a file of the digests of all pairs, in order, as uint64. Returns the path of the
    file of bits, for `read_marks`. Raises OSError if a file cannot be read or written.
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


def count_marks(marks: Path) -> int:
    """The number of pairs that repeat an earlier pair, from the file that `mark_repeats` wrote."""
    return int(np.unpackbits(np.fromfile(marks, np.uint8)).sum(dtype=np.int64))


def read_marks(marks: Path, first: int, count: int) -> NDArray[np.bool_]:
    """[count] For each of `count` pairs, whether the pair repeats an earlier pair.

    The first of these pairs has the number `first`, counted from 0. A pair that was added to the
    text after `mark_repeats` ran counts as no repeat.
    """
    begin, within = divmod(first, 8)
    bits = np.zeros((within + count + 7) // 8, np.uint8)
    found = np.fromfile(marks, np.uint8, len(bits), offset=begin)
    bits[: len(found)] = found
    return np.unpackbits(bits, bitorder="little")[within : within + count].astype(bool)


def _repeats(digests: Path, part: int, parts: int) -> NDArray[np.int64]:
    """The numbers of all pairs that repeat an earlier pair and whose digests are in this part."""
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
