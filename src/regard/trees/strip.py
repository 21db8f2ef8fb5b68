"""§6.3 Remove what a parser does not learn: traces, function tags, the bracket around the tree.

The whole field trains parsers on trees of the Penn treebank that are stripped like this.
"""

import re

from regard.trees.tree import Tree

TRACE = "-NONE-"
"""Tag of an element that is not spoken: `(NP-SBJ (-NONE- *-1))`."""
OUTER = ("", "TOP", "ROOT", "S1", "VROOT")
"""Labels of a bracket that is around the whole tree and says nothing about the sentence."""

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
    """The tree with each label reduced to its category: NP-SBJ-1, NP=2 and NP all become NP.

    Tags of words are cut in the same way. A label that begins with a hyphen, -LRB-, is not cut.
    """
    return tree.fold(lambda node, inside: Tree(category(node.label), tuple(inside), node.word))


def category(label: str) -> str:
    """A label up to its first hyphen or equals sign; -LRB-, which begins with one, is not cut."""
    return _FUNCTION.split(label, maxsplit=1)[0] or label


def without_outer(tree: Tree) -> Tree:
    """The tree without outer brackets, which have a label of OUTER and a single child."""
    while tree.label in OUTER and len(tree.children) == 1:
        tree = tree.children[0]
    return tree
