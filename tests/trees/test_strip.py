"""Stripping a tree before a parser learns from it."""

import pytest
from hypothesis import given

from regard.trees.penn import read_trees
from regard.trees.strip import OUTER, category, stripped, without_outer, without_traces
from regard.trees.tree import Tree
from trees.strategies import chain, trees


def tree(text: str) -> Tree:
    return next(read_trees([text], "hand"))


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("NP-SBJ", "NP"),
        ("NP-SBJ-1", "NP"),
        ("NP=2", "NP"),
        ("NP-SBJ=1", "NP"),
        ("NP-SBJ-1=4", "NP"),
        ("S-TTL-3-FRM", "S"),
        ("ADVP|PRT", "ADVP|PRT"),
        ("PRT|ADVP-DIR", "PRT|ADVP"),
        ("PRP$", "PRP$"),
        ("-LRB-", "-LRB-"),
        ("-NONE-", "-NONE-"),
        ("--", "--"),
        ("=", "="),
        ("''", "''"),
        ("", ""),
    ],
)
def test_a_category_is_a_label_without_functions(label: str, expected: str) -> None:
    assert category(label) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # WSJ 0001: the subject is a trace, which is removed with its phrase and the S around it.
        (
            "( (S (NP-SBJ-1 (PRP he)) (VP (VBD was) (VP (VBN named) (S (NP-SBJ (-NONE- *-1)))))))",
            "(S (NP (PRP he)) (VP (VBD was) (VP (VBN named))))",
        ),
        ("( (NP (NP (NN a)) (SBAR (WHNP-1 (-NONE- 0)) (S (-NONE- *T*-1)))))", "(NP (NP (NN a)))"),
        ("(TOP (S (-LRB- -LRB-) (NN a) (-RRB- -RRB-)))", "(S (-LRB- -LRB-) (NN a) (-RRB- -RRB-))"),
        ("(S (PRT|ADVP-CLR (RP up)))", "(S (PRT|ADVP (RP up)))"),
        ("(ROOT (TOP ( (S1 (S (NN a))))))", "(S (NN a))"),
        ("(TOP-1 (S (NN a)))", "(S (NN a))"),
        ("( (NN a))", "(NN a)"),
        ("( (NP (NN a)) (. .))", "( (NP (NN a)) (. .))"),
        # A bracket whose other child is removed as a trace is an outer bracket too.
        ("( (-NONE- *) (S (NN a)))", "(S (NN a))"),
        # A phrase with the label -NONE- is not a trace, and a trace may be any word.
        ("(S (-NONE- (RB down)) (-NONE- word))", "(S (-NONE- (RB down)))"),
    ],
)
def test_stripped(given: str, expected: str) -> None:
    assert str(stripped(tree(given))) == expected


def test_nothing_is_left_of_a_tree_of_traces() -> None:
    assert stripped(tree("( (S (NP (-NONE- *)) (VP (-NONE- *?*))))")) is None
    assert without_traces(tree("(-NONE- *)")) is None


@given(trees())
def test_what_is_stripped_has_nothing_to_strip(tree: Tree) -> None:
    once = stripped(tree)
    spoken = [leaf.word for leaf in tree.leaves() if leaf.label != "-NONE-"]
    if once is None:
        assert spoken == []
        return
    assert once.words() == spoken
    assert "-NONE-" not in once.tags()
    assert all(node.label == category(node.label) for node in once.nodes())
    assert once.label not in OUTER or len(once.children) != 1
    assert stripped(once) == once


def test_depth_is_no_obstacle() -> None:
    deep = chain(50_000)
    assert stripped(deep) == deep
    assert without_outer(Tree("TOP", (deep,))) == deep
