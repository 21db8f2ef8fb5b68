"""§6.3 What a parser does not learn: traces, function tags, and the bracket around the tree.

The trees of the Penn treebank are stripped of them before training, as everywhere in the field.
"""

import re
from typing import Literal

from regard.trees.tree import Tree

TRACE = "-NONE-"
"""The tag of what is not said: `(NP-SBJ (-NONE- *-1))`."""
OUTER = ("", "TOP", "ROOT", "S1", "VROOT")
"""Labels of a bracket around the whole tree, which says nothing about the sentence."""

Outer = Literal["drop", "keep"]

_FUNCTION = re.compile(r"[-=]")


def stripped(tree: Tree, outer: Outer = "drop") -> Tree | None:
    """The tree without traces, without function tags and, as is chosen, without its outer bracket.

    None when the tree is of nothing but traces.
    """
    spoken = without_traces(tree)
    if spoken is None:
        return None
    plain = without_functions(spoken)
    return plain if outer == "keep" else without_outer(plain)


def without_traces(tree: Tree) -> Tree | None:
    """The tree without its traces and the phrases that hold nothing else; None if that is all."""

    def spoken(node: Tree, inside: list[Tree | None]) -> Tree | None:
        children = tuple(child for child in inside if child is not None)
        if node.word is not None:
            return None if node.label == TRACE else node
        return Tree(node.label, children) if children else None

    return tree.fold(spoken)


def without_functions(tree: Tree) -> Tree:
    """The tree with the category alone of each label: NP-SBJ-1, NP=2 and NP are all NP.

    Tags of words are cut in the same way. A label that begins with a hyphen, -LRB-, is left whole.
    """
    return tree.fold(lambda node, inside: Tree(category(node.label), tuple(inside), node.word))


def category(label: str) -> str:
    """A label up to its first hyphen or equals sign; whole where it begins with one, as -LRB-.

    ADVP|PRT and PRP$ are categories as they stand.
    """
    return _FUNCTION.split(label, maxsplit=1)[0] or label


def without_outer(tree: Tree) -> Tree:
    """The tree inside the bracket, or several, that is labelled as OUTER and has one child."""
    while tree.label in OUTER and len(tree.children) == 1:
        tree = tree.children[0]
    return tree
