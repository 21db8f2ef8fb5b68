"""Chains of unary phrases, joined and taken apart."""

import pytest
from hypothesis import given

from regard.trees.penn import read_trees
from regard.trees.tree import Tree
from regard.trees.unaries import collapsed, expanded
from trees.strategies import chain, trees


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("(S (VP (VB go)))", "(S+VP (VB go))"),
        ("( (S (VP (VB go)) (. .)))", "(+S (VP (VB go)) (. .))"),
        ("(NP (NP (NP (NN a) (NN b))))", "(NP+NP+NP (NN a) (NN b))"),
        ("(NP (NN dog))", "(NP (NN dog))"),
        ("(VV+EC go)", "(VV+EC go)"),
        ("(A+B (C+ (NN a)))", r"(A\2b;B+C\2b; (NN a))"),
    ],
)
def test_by_hand(given: str, expected: str) -> None:
    [tree] = read_trees([given], "hand")
    assert str(collapsed(tree)) == expected
    assert expanded(collapsed(tree)) == tree


@given(trees())
def test_no_chain_is_left_and_the_way_back_is_exact(tree: Tree) -> None:
    joined = collapsed(tree)
    assert expanded(joined) == tree
    assert joined.words() == tree.words()
    for node in joined.nodes():
        assert not (len(node.children) == 1 and node.children[0].word is None)


def test_a_long_chain() -> None:
    tree = chain(2_000)
    assert len(list(collapsed(tree).nodes())) == 2
    assert expanded(collapsed(tree)) == tree


def test_depth_is_no_obstacle() -> None:
    tree = chain(50_000, branch=True)
    assert collapsed(tree) == tree == expanded(tree)
