"""Make new trees from the phrases of given trees, for a parser (§6.3) that has few trees.

A phrase is replaced by a random phrase of the given trees. Both phrases have the same label, and
the phrases around them have the same label, too. The result is a tree over a sentence that nobody
wrote, but most of its phrases stand where such phrases usually stand.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable

from regard.trees.tree import Tree

REPLACED = 0.15
"""The probability that a phrase is replaced, if there is a phrase to replace it."""
MOST_TREES = 20_000
"""Phrases are taken from at most this many trees, the first ones, so that memory is bounded."""


class Phrases:
    """The phrases of some trees, grouped by their label and the label of the phrase around them."""

    def __init__(self, trees: Iterable[Tree]):
        self._longest = 0
        """The number of words of the longest tree."""
        self._by_labels: dict[tuple[str, str], list[Tree]] = defaultdict(list)
        for number, tree in enumerate(trees):
            self._longest = max(self._longest, len(tree.words()))
            if number < MOST_TREES:
                self._collect(tree)

    def _collect(self, tree: Tree) -> None:
        for node in tree.nodes():
            for child in node.children:
                if child.word is None:
                    self._by_labels[node.label, child.label].append(child)

    def recombined(self, tree: Tree, draw: random.Random) -> Tree | None:
        """The tree with some phrases replaced at random, by numbers from `draw`.

        Returns None if no phrase changed, or if the new sentence has more words than the longest
        sentence of the given trees.
        """
        found = tree.fold(lambda node, children: self._with_replaced(node, children, draw))
        return found if found != tree and len(found.words()) <= self._longest else None

    def _with_replaced(self, node: Tree, children: list[Tree], draw: random.Random) -> Tree:
        if node.word is not None:
            return node
        chosen = list(children)
        for place, child in enumerate(node.children):
            if child.word is None and draw.random() < REPLACED:
                others = self._by_labels.get((node.label, child.label))
                chosen[place] = draw.choice(others) if others else chosen[place]
        return Tree(node.label, tuple(chosen))
