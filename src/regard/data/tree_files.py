"""Files of trees, read one tree after another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.files.lines import read_lines
from regard.trees.penn import parser_failed, read_scored_trees, read_trees
from regard.trees.strip import stripped
from regard.trees.tree import Tree


@dataclass(frozen=True)
class Treebank:
    """Files of bracketed trees, or of the lines that a parser writes: a score, a tab and a tree."""

    files: Sequence[Path]

    def trees(self, read: Callable[[int], object] | None = None) -> Iterator[Tree | None]:
        """Yield each tree of the files, or None for a tree that has only traces.

        Traces, function tags and the outer bracket are removed from each tree. If a file has
        scores, its empty lines are skipped, and so are lines on which the parser failed. `read` is
        called with the number of stored bytes that were read since the last call of `read`. Raises
        DataError for a bad file.
        """
        for path in self.files:
            with closing(read_lines(path, read)) as lines:
                yield from map(stripped, _trees(lines, str(path)))

    @cached_property
    def bytes(self) -> int:
        """The size of all files in bytes, at the time when this property was first read."""
        return sum(path.stat().st_size for path in self.files)


def _trees(lines: Iterator[str], name: str) -> Iterable[Tree]:
    """The trees in `lines`, where each tree may follow a score; `name` is the name of the file."""
    head = []
    for line in lines:
        head.append(line)
        if line.strip() and not parser_failed(line):
            break
    every = itertools.chain(head, lines)
    if head and "\t" in head[-1].split("(")[0].lstrip():
        return (tree for _, tree in read_scored_trees(every, name))
    return read_trees(every, name)
