"""Positions of the labels and words of a drawn tree, in cells of a terminal."""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from regard.errors import DataError
from regard.trees.tree import Tree

MOST_LEVELS = 1000
"""A tree with more levels of brackets than this is refused."""
GAP = 2
"""Empty cells between neighbouring subtrees."""

NodeKind = Literal["phrase", "tag", "word"]


@dataclass(frozen=True, slots=True)
class Placed:
    """A label or a word, its place in the drawing, and the branches that leave it."""

    text: str
    kind: NodeKind
    level: int
    """The number of labels above this text."""
    left: int
    """The first cell of the text, counted from 0."""
    width: int
    """Cells of the text; a wide character takes two."""
    centre: int
    """The cell in which the branch from above ends and the branches to the children begin."""
    below: tuple[int, ...]
    """The centre of each child. A tag has one child, its word; a word has no child."""


def placed(tree: Tree) -> Iterator[Placed]:
    """Yield all labels and words with their places; those of one level come from left to right.

    Raises DataError for a tree of more than MOST_LEVELS levels.
    """
    refuse_deep(tree)
    todo = [(tree.fold(_boxed), 0, 0)]
    while todo:
        box, left, level = todo.pop()
        below = tuple(left + start + child.centre for start, child in box.inside)
        start, own = left + box.start, cell_len(box.text)
        yield Placed(box.text, box.kind, level, start, own, left + box.centre, below)
        todo.extend((child, left + start, level + 1) for start, child in reversed(box.inside))


def refuse_deep(tree: Tree) -> None:
    """Raise DataError for a tree with more than MOST_LEVELS levels of brackets."""
    levels = tree.fold(lambda _, inside: 1 + max(inside, default=0))
    if levels > MOST_LEVELS:
        raise DataError(f"a tree of {levels} levels cannot be drawn: at most {MOST_LEVELS} can")


def shown(text: str) -> str:
    """The text to draw: control characters are escaped as by `repr`, and "" becomes ()."""
    return "".join(repr(c)[1:-1] if _is_control(c) else c for c in text) or "()"


def _is_control(character: str) -> bool:
    # Control characters here are control codes, surrogates, separators of lines and paragraphs,
    # changes of the direction of writing, and code points that end in FFFE or FFFF.
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(character) in _DIRECTIONS
        or ord(character) & 0xFFFE == 0xFFFE
    )


_DIRECTIONS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@dataclass(frozen=True, slots=True)
class _Box:
    """The layout of a subtree, with the text at its top.

    `start` and `centre` of the text are distances from the left edge of the subtree, in cells.
    """

    text: str
    kind: NodeKind
    width: int
    start: int
    centre: int
    inside: list[tuple[int, "_Box"]]
    """For each child: its distance from the left edge of the subtree, in cells, and its layout."""


def _boxed(node: Tree, inside: list[_Box]) -> _Box:
    if node.word is None:
        return _above(node.label, "phrase", inside)
    return _above(node.label, "tag", [_above(node.word, "word", [])])


def _above(label: str, kind: NodeKind, children: list[_Box]) -> _Box:
    """Lay out a text above its children, which stand side by side."""
    text = shown(label)
    own = max(1, cell_len(text))
    below = sum(child.width for child in children) + GAP * max(0, len(children) - 1)
    width = max(own, below)
    left = (width - below) // 2
    inside = []
    for child in children:
        inside.append((left, child))
        left += child.width + GAP
    centre = own // 2
    if inside:
        (first, leftmost), (last, rightmost) = inside[0], inside[-1]
        centre = (first + leftmost.centre + last + rightmost.centre) // 2
    start = min(max(centre - own // 2, 0), width - own)  # the text stays within the subtree's edges
    return _Box(text, kind, width, start, centre, inside)
