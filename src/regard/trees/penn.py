"""Penn bracketing (Marcus et al., 1993): the file format of treebanks and parses.

    ( (S (NP-SBJ-1 (DT The) (NN dog)) (VP (VBZ barks)) (. .)))

Several trees may share a line, and a tree may take several lines. Blanks are the six ASCII ones; a
no-break space is a character like any other. Words are kept in their written form, such as -LRB-
and `1\\/2`, so that a tree is written as it was read; `plain_word` gives ( and 1/2.

Irregular files are read as follows. Blanks may come between a bracket and its label, `( S (NN x))`.
If only one text follows such blanks, this text is a word without a tag, `( END_OF_TEXT_UNIT )`. A
word may hold blanks, as five words of the CRAFT treebank do, `(NN alpha 2)`; such blanks become
single spaces. Between trees, lines that begin with `*x*`, the headers of old releases, are ignored.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from regard.errors import DataError
from regard.trees.tree import Tree

MOST_TOKENS = 1_000_000
"""If a tree is still open at the end of a line, after more brackets and words than this, it is
refused: a closing bracket is probably missing."""
DEEPEST_INDENT = 30
"""The most levels by which `pretty` indents a line."""

_BLANK = r" \t\r\n\f\v"
_TEXT = rf"[^{_BLANK}()]"
# A token is a leaf in its usual form, an opening bracket with its label, a closing bracket, or any
# other text.
_TOKEN = re.compile(rf"\(({_TEXT}++) ({_TEXT}++)\)|\(({_TEXT}*+)|\)|{_TEXT}++")
_LABEL = re.compile(rf"{_TEXT}*")
_WORD = re.compile(rf"{_TEXT}+( {_TEXT}+)*")
# The tree that a parser prints where it fails: (()) or ().
_FAILED = re.compile(rf"[{_BLANK}]*\(([{_BLANK}]*\([{_BLANK}]*\))?[{_BLANK}]*\)[{_BLANK}]*")
_HEADER = "*x*"


def read_trees(lines: Iterable[str], name: str) -> Iterator[Tree]:
    """Read the trees of a file, called `name` in messages; one tree is in memory at a time.

    The lines may have line ends (LF or CRLF) or none. Raises DataError, with file, line and column
    (from 1), for a bracket that is missing, surplus or empty; for a word outside all brackets; for
    a word that has no tag and stands beside a bracket; and for a tree that is too long
    (MOST_TOKENS).
    """
    reader = _Reader(name)
    for number, line in _numbered(lines):
        if reader.between_trees and line.startswith(_HEADER):
            continue
        yield from reader.read(line, number)
    reader.end()


def read_scored_trees(lines: Iterable[str], name: str) -> Iterator[tuple[float, Tree]]:
    """Yield the score and the tree on each line of a file; a parser prints such files.

    A line is a score, a tab and a tree. Blank lines are skipped, and so are lines on which the
    parser failed: their tree is (()) or (), and their score may be any text or be missing. Raises
    DataError in the same cases as `read_trees`, and for a line that does not have a finite score
    and exactly one tree.
    """
    for number, line in _numbered(lines):
        if not line.strip() or parser_failed(line):
            continue
        value, end = _score(line, name, number)
        reader = _Reader(name)
        trees = list(reader.read(line, number, end))
        reader.end()
        if len(trees) != 1:
            raise DataError(
                f"holds {len(trees)} trees: a line is a score, a tab and a tree", name, number
            )
        yield value, trees[0]


def parser_failed(line: str) -> bool:
    """Whether the tree of a line is (()) or (), which a parser prints where it fails.

    The line may have a score and a tab before the tree.
    """
    return bool(_FAILED.fullmatch(line.split("\t", 1)[-1]))


def bracketed(tree: Tree) -> str:
    """The tree on one line; `read_trees` restores the tree from this line.

    Round brackets in labels and words are written -LRB- and -RRB-, and are not restored. Raises
    DataError for an empty word; for any blank in a label, or in a word without a tag; and for
    blanks in another word that are not single spaces.
    """
    return str(tree.fold(_writable))


def pretty(tree: Tree, columns: int = 100) -> str:
    """The tree in brackets as in `bracketed`, but over several lines.

    A phrase that fits in `columns` characters stays on one line. Lines are indented by two spaces
    for each level, up to DEEPEST_INDENT levels. Raises DataError in the same cases as `bracketed`.
    """
    lines: list[str] = []
    todo = [(tree.fold(_writable).fold(_measured), 0, 0)]
    while todo:
        phrase, level, closing = todo.pop()
        indent = "  " * min(level, DEEPEST_INDENT)
        if not phrase.inside or len(indent) + phrase.length + closing <= columns:
            lines.append(f"{indent}{phrase.tree}{')' * closing}")
            continue
        lines.append(f"{indent}({phrase.tree.label}")
        todo.append((phrase.inside[-1], level + 1, closing + 1))
        todo.extend((child, level + 1, 0) for child in reversed(phrase.inside[:-1]))
    return "\n".join(lines)


def plain_word(word: str) -> str:
    """The word as it was printed, such as ( for -LRB-, 1/2 for `1\\/2` and * for `\\*`."""
    for code, bracket in _CODES.items():
        word = word.replace(code, bracket)
    return word.replace("\\/", "/").replace("\\*", "*")


def with_tags_of(tree: Tree, other: Tree) -> Tree:
    """The tree `tree` with other tags: those of `other`, which is a tree over the same words."""
    tags = (leaf.label for leaf in other.leaves())
    return tree.fold(
        lambda node, inside: Tree(
            node.label if node.word is None else next(tags), tuple(inside), node.word
        )
    )


def without_blanks(tree: Tree) -> Tree:
    """The tree with each space in a word replaced by _, so that no word contains a space."""
    return tree.fold(_without_blanks)


def _without_blanks(node: Tree, inside: list[Tree]) -> Tree:
    word = None if node.word is None else node.word.replace(" ", "_")
    return Tree(node.label, tuple(inside), word)


_CODES = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
_ROUND = str.maketrans({"(": "-LRB-", ")": "-RRB-"})


@dataclass(slots=True)
class _Bracket:
    """A bracket that is still open, its place in the file, and its content read so far.

    `texts` are the texts that come after the label and have no brackets of their own.
    """

    label: str
    line: int
    column: int
    children: list[Tree] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class _Reader:
    """Reads line after line, and keeps the brackets that are still open after each line."""

    def __init__(self, name: str):
        self._name = name
        self._number = 0
        self._open: list[_Bracket] = []
        self._tokens = 0

    @property
    def between_trees(self) -> bool:
        return not self._open

    def read(self, line: str, number: int, start: int = 0) -> Iterator[Tree]:
        """Yield the trees that end on this line; its first `start` characters are skipped."""
        self._number = number
        for token in _TOKEN.finditer(line, start):
            self._tokens += 1
            if token.lastindex == 2:
                self._begin_child(token.start())
                tree = Tree(token[1], word=token[2])
            elif token.lastindex == 3:
                self._begin_child(token.start())
                self._open.append(_Bracket(token[3], number, token.start() + 1))
                continue
            elif token[0] == ")":
                tree = self._closed(token.start())
            else:
                self._text(token[0], token.start())
                continue
            if self._open:
                self._open[-1].children.append(tree)
            else:
                self._tokens = 0
                yield tree
        if self._tokens > MOST_TOKENS:
            raise self._unclosed(f"is still open after {MOST_TOKENS:,} brackets and words")

    def end(self) -> None:
        """Raise DataError if the file ends within a tree."""
        if self._open:
            raise self._unclosed(
                f"is still open where the file ends, {len(self._open)} levels deep"
            )

    def _begin_child(self, at: int) -> None:
        """Use the text before this child, if any, as the open bracket's label: S in `( S (NP`.

        Raises DataError if the open bracket has a label already, or several texts.
        """
        if self._open and (around := self._open[-1]).texts:
            if around.label or len(around.texts) > 1:
                raise self._beside(around.texts[-1], at)
            around.label = around.texts.pop()

    def _text(self, text: str, at: int) -> None:
        if not self._open:
            raise self._refusal(f"{_clipped(text)} stands outside all brackets", at)
        if self._open[-1].children:
            raise self._beside(text, at)
        self._open[-1].texts.append(text)

    def _closed(self, at: int) -> Tree:
        if not self._open:
            raise self._refusal("this closing bracket has no opening one", at)
        bracket = self._open.pop()
        if bracket.children:
            return Tree(bracket.label, tuple(bracket.children))
        texts = bracket.texts
        if not texts:
            raise self._empty(bracket)
        label = bracket.label if bracket.label or len(texts) == 1 else texts.pop(0)
        return Tree(label, word=" ".join(texts))

    def _beside(self, word: str, at: int) -> DataError:
        return self._refusal(
            f"the word {_clipped(word)} and a bracket stand side by side: give the word a tag, "
            "as in (NN dog)",
            at,
        )

    def _empty(self, bracket: _Bracket) -> DataError:
        return DataError(
            "this bracket is empty (a parser prints (()) where it fails: remove that)",
            f"{self._name}:{bracket.line}:{bracket.column}",
        )

    def _unclosed(self, problem: str) -> DataError:
        first = self._open[0]
        return DataError(
            f"the tree that begins here {problem}: a closing bracket is missing",
            f"{self._name}:{first.line}:{first.column}",
        )

    def _refusal(self, problem: str, at: int) -> DataError:
        return DataError(problem, f"{self._name}:{self._number}:{at + 1}")


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; a byte order mark at the start of the file is dropped."""
    for number, line in enumerate(lines, 1):
        yield number, line.removeprefix("\ufeff") if number == 1 else line


def _score(line: str, name: str, number: int) -> tuple[float, int]:
    """The score, and the index of the tab after it; raises DataError if the score is not finite."""
    score = line.partition("\t")[0]
    try:
        value = float(score)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(
            f"{_clipped(score)} is not a score: a line is a score, a tab and a tree", name, number
        )
    return value, len(score)


def _clipped(text: str) -> str:
    """The first 40 characters of a text from a file, quoted for a message."""
    return repr(text if len(text) <= 40 else text[:40] + "...")


@dataclass(frozen=True, slots=True)
class _Measured:
    """A tree, its length on one line in characters, and its children, measured in the same way."""

    tree: Tree
    length: int
    inside: list["_Measured"]


def _measured(tree: Tree, inside: list[_Measured]) -> _Measured:
    below = len(tree.word) + 1 if tree.word is not None else sum(c.length + 1 for c in inside)
    return _Measured(tree, len(tree.label) + 2 + below, inside)


def _writable(node: Tree, children: list[Tree]) -> Tree:
    label = node.label.translate(_ROUND)
    if not _LABEL.fullmatch(label):
        raise DataError(
            f"the label {_clipped(label)} holds blanks, which bracketing cannot express"
        )
    if node.word is None:
        return Tree(label, tuple(children))
    word = node.word.translate(_ROUND)
    if not (_WORD if label else _LABEL).fullmatch(word) or not word:
        raise DataError(
            f"the word {_clipped(word)} is empty, or has blanks that bracketing cannot express"
        )
    return Tree(label, word=word)
