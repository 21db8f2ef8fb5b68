"""Aligned text (§5.1): line i of the target files translates line i of the source files.

The text may be larger than memory, so it is streamed from disk each time that it is read, in blocks
of lines. A block holds undecoded bytes, so that it can be sent to another process quickly.
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

from regard.amounts import count_of
from regard.errors import DataError
from regard.files.lines import decode_lines, read_blocks, refuse_unreadable
from regard.files.regular import identity
from regard.machine.workers import Workers

TextPair = tuple[str, str]
"""A source sentence and its target, as text."""
Stage = Literal["count", "draw", "survey", "learn", "phrases", "encode"]
_Result = TypeVar("_Result")

_BLOCK_PAIRS, _BLOCK_BYTES = 10_000, 2**20
"""A block has at most this many pairs, and at most this many bytes on each side. A pair with more
bytes is a block of its own."""


@dataclass(frozen=True)
class Progress:
    """How much of a corpus has been read, in a stage of its preparation or to count its pairs."""

    stage: Stage
    done: int
    """The number of bytes read so far, counted in the stored files, which may be compressed."""
    total: int
    """The size of all stored files, in bytes. For trees, only the files of the kind that is being
    read count: gold, silver or validation trees."""
    pairs: int
    """The number of pairs, or of trees, that have been read."""


@dataclass(frozen=True)
class AlignedBlock:
    """Consecutive lines of two aligned files, undecoded."""

    paths: tuple[Path, Path]
    sides: tuple[bytes, bytes]
    size: int
    """The number of pairs in the block."""
    line: int
    """Number of lines before the block in each of the two files."""
    number: int
    """Number of pairs before the block in the whole corpus."""
    file: int
    """Index in `AlignedText.files`, from 0, of the two files that the block is from."""

    def pairs(self) -> list[TextPair]:
        """The decoded pairs; raises DataError for lines that are binary or not UTF-8."""
        sources, targets = (
            decode_lines(side, path, self.line)
            for path, side in zip(self.paths, self.sides, strict=True)
        )
        return list(zip(sources, targets, strict=True))


class AlignedText:
    """Source files and their target files; each file may be read several times.

    `each` and `counted` call `listen` with the progress; `pairs` does not. `name` is the path by
    which messages name the whole text, by default the first source file. If this text was drawn
    from a larger text (`drawing.draw`), `not_drawn` is the number of the larger text's pairs that
    were left out. Raises DataError if the number of source files differs from the number of target
    files, if a file cannot be read, or if a file, such as a pipe, can be read only once.
    """

    def __init__(
        self,
        sources: Sequence[Path],
        targets: Sequence[Path],
        listen: Callable[[Progress], object] = lambda _: None,
        name: Path | None = None,
        not_drawn: int = 0,
    ):
        if len(sources) != len(targets):
            raise DataError(
                f"{len(sources)} source files but {len(targets)} target files: give them in pairs"
            )
        for path in (*sources, *targets):
            refuse_unreadable(path)
        self.files = list(zip(sources, targets, strict=True))
        self.bytes = sum(path.stat().st_size for paths in self.files for path in paths)
        """The size of all stored files, in bytes."""
        self.name = name or next(iter(sources), None)
        """The path that an error message about the whole text names."""
        self.not_drawn = not_drawn
        self._listen = listen
        self._before = [identity(path) for paths in self.files for path in paths]

    def refuse_changed(self) -> None:
        """Raise DataError if a file was replaced or written to since this object was made.

        Raises OSError if a file is missing.
        """
        paths = [path for paths in self.files for path in paths]
        for path, before in zip(paths, self._before, strict=True):
            if identity(path) != before:
                raise DataError(
                    "has changed while it was read: do not change the text while it is being "
                    "prepared",
                    path,
                )

    def pairs(self) -> Iterator[TextPair]:
        """All pairs in order, decoded in this process; raises DataError as `each` does."""
        for block, _ in self._blocks():
            yield from block.pairs()

    def counted(self) -> Iterator[TextPair]:
        """All pairs, as `pairs` yields them; `listen` is told the progress of the stage "count"."""
        done = pairs = 0
        self._listen(Progress("count", done, self.bytes, pairs))
        for block, done in self._blocks():
            yield from block.pairs()
            pairs = block.number + block.size
            self._listen(Progress("count", done, self.bytes, pairs))
        if done < self.bytes:  # the last bytes may be counted after the last block
            self._listen(Progress("count", self.bytes, self.bytes, pairs))

    def each(
        self, stage: Stage, job: Callable[[AlignedBlock], _Result], workers: Workers
    ) -> Iterator[_Result]:
        """Let the workers run `job` on each block; yield the results in the order of the blocks.

        Raises DataError if a file cannot be read, or if a line cannot be decoded or has no
        counterpart in the other file. Raises RegardError if a worker process was killed. Also
        raises the errors of `job`.
        """
        total, done, pairs = self.bytes, 0, 0
        self._listen(Progress(stage, done, total, pairs))
        # For each block: the number of stored bytes and of pairs that have been read at its end.
        ends: deque[tuple[int, int]] = deque()

        def blocks() -> Iterator[AlignedBlock]:
            for block, read in self._blocks():
                ends.append((read, block.number + block.size))
                yield block

        for result in workers.map(job, blocks()):
            done, pairs = ends.popleft()
            yield result
            self._listen(Progress(stage, done, total, pairs))
        if done < total:  # the last bytes may be counted after the last block
            self._listen(Progress(stage, total, total, pairs))

    def _blocks(self) -> Iterator[tuple[AlignedBlock, int]]:
        """Yield each block of the corpus, and about how many stored bytes have been read so far."""
        number = read = 0

        def count(more: int) -> None:
            nonlocal read
            read += more

        for file, paths in enumerate(self.files):
            source, target = (_Side(path, count) for path in paths)
            line = 0
            while size := min(source.fill(), target.fill()):
                sides = source.take(size), target.take(size)
                yield AlignedBlock(paths, sides, size, line, number, file), read
                line, number = line + size, number + size
            lines = [side.lines(line) for side in (source, target)]
            if lines[0] != lines[1]:
                shorter, longer = paths if lines[0] < lines[1] else paths[::-1]
                raise _misaligned(shorter, longer, *sorted(lines))


class _Side:
    """The lines of one file; memory never holds much more than the next block of lines."""

    def __init__(self, path: Path, count: Callable[[int], object]):
        self._path = path
        self._blocks = read_blocks(path, count)
        self._held = b""
        self._ends: NDArray[np.intp] = np.zeros(0, np.intp)

    def fill(self) -> int:
        """Read enough lines for a block; return how many of them fit into a block.

        Returns 0 at the end of the file.
        """
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
        """Read the rest of the file, and return the number of all its lines.

        `before` is the number of lines that have been taken already. Raises DataError for a line
        that cannot be decoded.
        """
        for block in chain([self._held] if self._held else [], self._blocks):
            before += len(decode_lines(block, self._path, before))
        return before


def _misaligned(shorter: Path, longer: Path, lines: int, longer_lines: int) -> DataError:
    return DataError(
        f"{'this is the last line' if lines else 'is empty'}, but {longer} has "
        f"{count_of(longer_lines, 'line')}: line i of one must translate line i of the other, so "
        "find where they diverge",
        shorter,
        lines or None,
    )
