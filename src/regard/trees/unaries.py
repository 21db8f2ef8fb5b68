"""Unary chains: a phrase whose only child is a phrase, as one phrase with a joined label, and back.

(S (VP (VB go)))  <->  (S+VP (VB go))
"""

from regard.trees.escapes import escaped, unescaped
from regard.trees.tree import Tree

JOINT = "+"


def collapsed(tree: Tree) -> Tree:
    """The tree with each unary chain of phrases as one; `expanded` gives the chain back.

    Leaves are no phrases: (NP (NN dog)) stays. A + in a label of the tree is written `\\2b;`.
    """

    def joined(node: Tree, inside: list[Tree]) -> Tree:
        if node.word is not None:
            return node
        label = escaped(node.label, JOINT)
        if len(inside) == 1 and inside[0].word is None:
            return Tree(f"{label}{JOINT}{inside[0].label}", inside[0].children)
        return Tree(label, tuple(inside))

    return tree.fold(joined)


def expanded(tree: Tree) -> Tree:
    """The tree that `collapsed` was given. Of other trees, the one that its labels spell."""

    def apart(node: Tree, inside: list[Tree]) -> Tree:
        if node.word is not None:
            return node
        *above, lowest = map(unescaped, node.label.split(JOINT))
        chain = Tree(lowest, tuple(inside))
        for label in reversed(above):
            chain = Tree(label, (chain,))
        return chain

    return tree.fold(apart)
