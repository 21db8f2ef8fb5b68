"""§6.3 Trees in prepared data: ids of a sentence's sub-words, and ids of its tree's symbols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path

from regard.data.encoding import SplitCounts
from regard.data.pairs import EncodedSentences, SideWriter
from regard.errors import DataError
from regard.recipe import DataRecipe
from regard.text.cleaning import Verdict, judge_length
from regard.text.tokenizer import Tokenizer
from regard.trees.linearise import Form, linearise
from regard.trees.penn import plain_word
from regard.trees.tree import Tree

TREES_AT_ONCE = 1000
"""Number of trees that are encoded together."""


def as_text(words: Sequence[str]) -> str:
    """The sentence as the encoder reads it: words as in print (see `plain_word`), joined by spaces.

    A space within a word, which some treebanks have, is replaced by _.
    """
    return " ".join(plain_word(word).replace(" ", "_") for word in words)


class TreeEncoder:
    """Encodes sentences and their trees as ids."""

    def __init__(self, tokenizer: Tokenizer, form: Form):
        self.tokenizer, self._form = tokenizer, form
        self._symbols = tokenizer.symbols

    def __call__(self, trees: Sequence[Tree]) -> list[tuple[Sequence[int], Sequence[int]]]:
        """The ids of each sentence and of its tree, without </s>.

        Raises DataError if a token of a tree is not a symbol of the tokenizer.
        """
        sources = self.tokenizer.encode([as_text(tree.words()) for tree in trees])
        try:
            targets = [[self._symbols[token] for token in linearise(t, self._form)] for t in trees]
        except KeyError as new:
            raise DataError(
                f"{new} was in no tree when the trees were first read: do not change them while "
                "they are being prepared"
            ) from None
        return list(zip(sources, targets, strict=True))


class TreeWriter:
    """Encodes trees and appends them to the files of a split, many trees at once.

    `stem` is the common part of the split's paths, for instance out/train. Trees that are too long
    for `rules` are dropped; if `rules` is None, no tree is dropped. `valid` has the trees of the
    given validation files; written trees that are also in `valid` are counted. All methods except
    `counts` raise OSError if a file cannot be written.
    """

    def __init__(
        self,
        stem: Path,
        encoder: TreeEncoder,
        rules: DataRecipe | None = None,
        valid: Set[Tree] = frozenset(),
    ):
        self.fates: Counter[Verdict] = Counter()
        self._encoder, self._rules, self._valid, self._validated = encoder, rules, valid, 0
        self._sides = [
            SideWriter(stem.with_name(f"{stem.name}.{side}"), encoder.tokenizer.size)
            for side in ("source", "target")
        ]
        self._waiting: list[tuple[Tree, int]] = []

    def write(self, tree: Tree, copies: int = 1) -> None:
        """Write a tree `copies` times; the tree is encoded later, together with other trees.

        Raises DataError as `TreeEncoder` does, perhaps for an earlier tree.
        """
        self._waiting.append((tree, copies))
        if len(self._waiting) == TREES_AT_ONCE:
            self._flush()

    def close(self) -> None:
        """Write the trees that are waiting, and complete the files.

        Raises the errors of `write`.
        """
        try:
            self._flush()
        finally:
            for side in self._sides:
                side.close()

    def counts(self) -> SplitCounts:
        """How many trees were written and dropped; call this after `close`."""
        return replace(SplitCounts.of(self.fates, *self._sides), validated=self._validated)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        kept = []
        pairs = self._encoder([tree for tree, _ in waiting])
        for (source, target), (tree, copies) in zip(pairs, waiting, strict=True):
            verdict = Verdict.KEPT
            if self._rules is not None:
                verdict = judge_length(len(source), len(target), self._rules)
            self.fates[verdict] += copies
            if verdict is Verdict.KEPT:
                kept += [(source, target)] * copies
                self._validated += copies * (tree in self._valid)
        for i, side in enumerate(self._sides):
            side.append(
                EncodedSentences.of([pair[i] for pair in kept], self._encoder.tokenizer.size)
            )
