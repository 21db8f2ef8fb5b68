"""Aligned text (§5.1): line i of the target files translates line i of the source files.

The text may be larger than memory, so each reading streams it from disk, as blocks of undecoded
lines, which are quick to pass to another process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.errors import DataError
from regard.files.lines import decode_lines, read_blocks, refuse_unreadable
from regard.machine.workers import Workers

TextPair = tuple[str, str]
"""A source sentence and its target, as text."""
Stage = Literal["survey", "learn", "encode"]
_Result = TypeVar("_Result")

_BLOCK_PAIRS, _BLOCK_BYTES = 10_000, 2**20
"""Pairs and bytes of the largest block: it ends before a pair that would exceed either."""


@dataclass(frozen=True)
class Progress:
    """How far one reading of a corpus has come."""

    stage: Stage
    done: int
    """Bytes read so far, of the files as they are stored."""
    total: int
    """Bytes of all files, as they are stored."""
    pairs: int
    """Pairs, or trees, done so far."""


@dataclass(frozen=True)
class AlignedBlock:
    """Consecutive lines of two aligned files, undecoded."""

    paths: tuple[Path, Path]
    sides: tuple[bytes, bytes]
    size: int
    """Pairs in the block."""
    line: int
    """Lines of the two files before the block."""
    number: int
    """Pairs of the corpus before the block."""

    def pairs(self) -> list[TextPair]:
        """The decoded pairs; raises DataError for lines that are binary or not UTF-8."""
        sources, targets = (
            decode_lines(side, path, self.line)
            for path, side in zip(self.paths, self.sides, strict=True)
        )
        return list(zip(sources, targets, strict=True))


class AlignedText:
    """Source files and their target files, which are read several times.

    `listen` is called with the progress of each reading. Raises DataError where there are not as
    many sources as targets, and for a file that cannot be read, or not more than once.
    """

    def __init__(
        self,
        sources: Sequence[Path],
        targets: Sequence[Path],
        listen: Callable[[Progress], object] = lambda _: None,
    ):
        if len(sources) != len(targets):
            raise DataError(
                f"{len(sources)} source files but {len(targets)} target files: give them in pairs"
            )
        for path in (*sources, *targets):
            refuse_unreadable(path)
        self.files = list(zip(sources, targets, strict=True))
        self._listen = listen

    def bytes(self) -> int:
        """Bytes of all files, as they are stored."""
        return sum(path.stat().st_size for paths in self.files for path in paths)

    def pairs(self) -> Iterator[TextPair]:
        """All pairs in order, decoded in this process; raises DataError as `each` does."""
        for block, _ in self._blocks():
            yield from block.pairs()

    def each(
        self, stage: Stage, job: Callable[[AlignedBlock], _Result], workers: Workers
    ) -> Iterator[_Result]:
        """The results of `job` for each block, in order; the workers run it.

        Raises DataError for a line that cannot be decoded or has no counterpart.
        """
        total, done, pairs = self.bytes(), 0, 0
        self._listen(Progress(stage, done, total, pairs))
        places: deque[tuple[int, int]] = deque()  # for each block, bytes and pairs up to its end

        def blocks() -> Iterator[AlignedBlock]:
            for block, read in self._blocks():
                places.append((read, block.number + block.size))
                yield block

        for result in workers.map(job, blocks()):
            done, pairs = places.popleft()
            yield result
            self._listen(Progress(stage, done, total, pairs))
        if done < total:  # an archive has bytes after its last line
            self._listen(Progress(stage, total, total, pairs))

    def _blocks(self) -> Iterator[tuple[AlignedBlock, int]]:
        """The blocks of the corpus, each with the number of stored bytes read so far."""
        number = read = 0

        def count(more: int) -> None:
            nonlocal read
            read += more

        for paths in self.files:
            source, target = (_Side(path, count) for path in paths)
            line = 0
            while size := min(source.fill(), target.fill()):
                yield (
                    AlignedBlock(paths, (source.take(size), target.take(size)), size, line, number),
                    read,
                )
                line, number = line + size, number + size
            lines = [side.lines(line) for side in (source, target)]
            if lines[0] != lines[1]:
                shorter, longer = paths if lines[0] < lines[1] else paths[::-1]
                raise _misaligned(shorter, longer, *sorted(lines))


class _Side:
    """The lines of one file, read a little ahead of need."""

    def __init__(self, path: Path, count: Callable[[int], object]):
        self._path = path
        self._blocks = read_blocks(path, count)
        self._held = b""
        self._ends: NDArray[np.intp] = np.zeros(0, np.intp)

    def fill(self) -> int:
        """Read enough lines for a block; returns how many it may have, 0 at the end of the file."""
        while (
            len(self._held) < _BLOCK_BYTES
            and len(self._ends) < _BLOCK_PAIRS
            and (block := next(self._blocks, None)) is not None
        ):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
            self._ends = np.concatenate([self._ends, ends + len(self._held)])
            self._held += block
        fitting = int(self._ends.searchsorted(_BLOCK_BYTES, "right"))
        return min(max(1, fitting), _BLOCK_PAIRS, len(self._ends))

    def take(self, lines: int) -> bytes:
        """Remove and return the next lines; `fill` must have read them."""
        end = int(self._ends[lines - 1])
        taken, self._held = self._held[:end], self._held[end:]
        self._ends = self._ends[lines:] - end
        return taken

    def lines(self, before: int) -> int:
        """Count the lines of the file after the `before` that were taken; returns the sum.

        Raises DataError for a line that cannot be decoded.
        """
        for block in chain([self._held] if self._held else [], self._blocks):
            before += len(decode_lines(block, self._path, before))
        return before


def _misaligned(shorter: Path, longer: Path, lines: int, longer_lines: int) -> DataError:
    return DataError(
        f"{'this is the last line' if lines else 'is empty'}, but {longer} has {longer_lines} "
        "lines: line i of one must translate line i of the other, so find where they diverge",
        shorter,
        lines or None,
    )
