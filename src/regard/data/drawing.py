"""§5.1 Draw a share of the pairs of a text (data.share), before any other work is done on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from regard.data.aligned import AlignedBlock, AlignedText, Progress
from regard.data.pairs import SIDES
from regard.data.repeats import digest
from regard.errors import DataError
from regard.machine.workers import Workers
from regard.recipe import Recipe


def draw(
    text: AlignedText,
    recipe: Recipe,
    workers: Workers,
    folder: Path,
    progress: Callable[[Progress], object],
) -> AlignedText:
    """Draw pairs, copy them to files in `folder`, and return the copy.

    Each distinct pair is drawn with the probability data.share. Only the pair and the seed decide
    whether it is drawn. So of equal pairs, all are drawn or none, and a larger share contains all
    pairs of a smaller share. The copy has as many files as `text`, and its pairs are in the same
    order. If data.share is 1, `text` itself is returned. `progress` is called while the copy is
    read.
    Raises the errors of `AlignedText.each`, DataError if `text` has pairs but none is drawn, and
    OSError if the copy cannot be written.
    """
    if recipe.data.share == 1:
        return text
    copies = [[folder / f"{file}.{side}" for side in SIDES] for file in range(len(text.files))]
    read, drawn = _copy(text, copies, _Drawer(recipe), workers)
    if read and not drawn:
        raise DataError(
            f"data.share = {recipe.data.share} draws none of its {read:,} pairs: set a larger one",
            text.name,
        )
    sources, targets = ([both[i] for both in copies] for i in (0, 1))
    return AlignedText(sources, targets, progress, name=text.name, not_drawn=read - drawn)


def _copy(
    text: AlignedText, copies: Sequence[Sequence[Path]], job: _Drawer, workers: Workers
) -> tuple[int, int]:
    """Write the drawn pairs to `copies`; return how many pairs were read, and how many drawn.

    `copies[i]` has the paths for the copies of the source and the target file `text.files[i]`.
    """
    for path in chain(*copies):
        path.touch()
    read = drawn = 0
    for found in text.each("draw", job, workers):
        read, drawn = read + found.read, drawn + len(found.sources)
        for path, lines in zip(copies[found.file], (found.sources, found.targets), strict=True):
            with path.open("a", encoding="utf-8", newline="\n") as file:
                # The byte order mark is needed if the first line looks like the start of a PDF or
                # an archive: without the mark, the file would not be read as text. Reading drops
                # the mark. Reading also drops a carriage return before a line feed, so a line that
                # ends in a carriage return gets a second one.
                file.write("\ufeff" * (bool(lines) and file.tell() == 0))
                file.writelines(f"{x}\r\n" if x.endswith("\r") else f"{x}\n" for x in lines)
    return read, drawn


@dataclass(frozen=True)
class _Found:
    """The result of reading one block."""

    file: int
    """Index in `AlignedText.files` of the two files that the block is from."""
    read: int
    """The number of pairs in the block."""
    sources: list[str]
    """The sources of the drawn pairs."""
    targets: list[str]
    """The targets of the drawn pairs."""


class _Drawer:
    """Draws pairs of a block."""

    def __init__(self, recipe: Recipe):
        self._below, self._seed = recipe.data.share * 2.0**64, recipe.training.seed

    def __call__(self, block: AlignedBlock) -> _Found:
        drawn = [pair for pair in block.pairs() if digest(pair, self._seed) < self._below]
        sources, targets = ([pair[i] for pair in drawn] for i in (0, 1))
        return _Found(block.file, block.size, sources, targets)
