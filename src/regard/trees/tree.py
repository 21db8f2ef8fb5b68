"""§6.3 A constituency tree: phrases with labels, and at the leaves words with their tags.

Trees come from unknown files and from models that are still learning, so a tree may have thousands
of levels. No function here is recursive: a tree of any depth can be made, compared, hashed, shown,
copied and pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")


class Span(NamedTuple):
    """A phrase as evaluation sees it: its label and its range of words.

    The range has the words `start` to `end` - 1 of the sentence, counted from 0.
    """

    label: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tree:
    """Either a phrase, which has at least one child, or a leaf, which is a word with its tag.

    `Tree("NP", (Tree("DT", word="the"), Tree("NN", word="dog")))` is (NP (DT the) (NN dog)).
    Labels and words may be any text, the empty one included. Raises ValueError for a node with
    neither children nor a word, or with both.
    """

    label: str
    """The label of a phrase, or the part-of-speech tag of a leaf."""
    children: tuple[Tree, ...] = ()
    word: str | None = None

    def __post_init__(self) -> None:
        if bool(self.children) == (self.word is not None):
            raise ValueError(f"a node has either children or a word: {self.label!r}")

    def nodes(self) -> Iterator[Tree]:
        """All nodes, leaves included: a phrase before its children, from left to right."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            todo.extend(reversed(node.children))

    def leaves(self) -> Iterator[Tree]:
        """The leaves from left to right."""
        return (node for node in self.nodes() if node.word is not None)

    def words(self) -> list[str]:
        """The words of the sentence."""
        return [node.word for node in self.nodes() if node.word is not None]

    def tags(self) -> list[str]:
        """The part-of-speech tags, one for each word."""
        return [leaf.label for leaf in self.leaves()]

    def spans(self) -> list[Span]:
        """The spans of all phrases; a phrase comes after the phrases inside it."""
        found: list[Span] = []
        words = 0

        def span(node: Tree, inside: list[tuple[int, int]]) -> tuple[int, int]:
            nonlocal words
            if node.word is not None:
                words += 1
                return words - 1, words
            found.append(Span(node.label, inside[0][0], inside[-1][1]))
            return inside[0][0], inside[-1][1]

        self.fold(span)
        return found

    def fold(self, combine: Callable[[Tree, list[_T]], _T]) -> _T:
        """Call `combine(node, results of its children)` for every node, children first.

        The children of a node come from left to right. Returns the result for `self`, which is
        computed last.
        """
        done: list[_T] = []
        for node in reversed(list(self._backwards())):
            first = len(done) - len(node.children)
            inside = done[first:]
            del done[first:]
            done.append(combine(node, inside))
        return done[0]

    def __str__(self) -> str:
        """The tree in brackets, on one line; nothing in labels and words is escaped."""
        pieces: list[str] = []
        todo: list[Tree | None] = [self]
        while todo:
            node = todo.pop()
            if node is None:
                pieces.append(")")
            elif node.word is not None:
                pieces.append(f" ({node.label} {node.word})")
            else:
                pieces.append(f" ({node.label}")
                todo.append(None)
                todo.extend(reversed(node.children))
        return "".join(pieces)[1:]

    def __repr__(self) -> str:
        return f"<Tree {self}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return self is other or self._flat() == other._flat()

    def __hash__(self) -> int:
        return hash(tuple(self._flat()))

    def __reduce__(self) -> tuple[Callable[[Iterable[_Node]], Tree], tuple[list[_Node]]]:
        return _unflattened, (self._flat(),)

    def _backwards(self) -> Iterator[Tree]:
        """All nodes: a phrase before its children, the children from right to left."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            todo.extend(node.children)

    def _flat(self) -> list[_Node]:
        nodes = [(node.label, node.word, len(node.children)) for node in self._backwards()]
        nodes.reverse()
        return nodes


_Node = tuple[str, str | None, int]
"""Label, word and number of children of a node. A list of such nodes describes a tree if each node
comes after its children."""


def _unflattened(nodes: Iterable[_Node]) -> Tree:
    done: list[Tree] = []
    for label, word, children in nodes:
        first = len(done) - children
        inside = tuple(done[first:])
        del done[first:]
        done.append(Tree(label, inside, word))
    return done[0]
