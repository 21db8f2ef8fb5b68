"""§6.3 Remove what a parser does not learn: traces, function tags, the bracket around the tree.

Parsers are usually trained and tested on trees of the Penn treebank that are stripped like this.
"""

import re

from regard.trees.tree import Tree

TRACE = "-NONE-"
"""The tag of a trace, an element of the tree that is not spoken: `(NP-SBJ (-NONE- *-1))`."""
OUTER = ("", "TOP", "ROOT", "S1", "VROOT")
"""Labels of outer brackets, which are around the whole tree and say nothing about the sentence."""

_FUNCTION = re.compile(r"[-=]")


def stripped(tree: Tree) -> Tree | None:
    """The tree without traces, function tags and outer brackets; None if it has only traces."""
    spoken = without_traces(tree)
    return None if spoken is None else without_outer(without_functions(spoken))


def without_traces(tree: Tree) -> Tree | None:
    """The tree without traces and phrases that hold only traces; None if nothing is left."""

    def spoken(node: Tree, inside: list[Tree | None]) -> Tree | None:
        children = tuple(child for child in inside if child is not None)
        if node.word is not None:
            return None if node.label == TRACE else node
        return Tree(node.label, children) if children else None

    return tree.fold(spoken)


def without_functions(tree: Tree) -> Tree:
    """The tree with each label and tag cut to its category: NP-SBJ-1, NP=2 and NP all become NP.

    A label or tag that begins with a hyphen or an equals sign, such as -LRB-, is not cut.
    """
    return tree.fold(lambda node, inside: Tree(category(node.label), tuple(inside), node.word))


def category(label: str) -> str:
    """The part of a label before its first hyphen or equals sign.

    A label that begins with such a character, like -LRB-, is returned whole.
    """
    return _FUNCTION.split(label, maxsplit=1)[0] or label


def without_outer(tree: Tree) -> Tree:
    """The tree without its outer brackets: they have a label in OUTER, and a single child."""
    while tree.label in OUTER and len(tree.children) == 1:
        tree = tree.children[0]
    return tree
