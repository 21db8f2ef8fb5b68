"""Recombined trees consist of phrases of the given trees, where such phrases stand."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.trees import recombining
from regard.trees.penn import bracketed, read_trees
from regard.trees.recombining import Phrases
from regard.trees.tree import Tree

LINES = [
    "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))",
    "(S (NP (NP (DT a) (NN cat)) (PP (IN of) (NP (PRP mine)))) (VP (VBZ sees) (NP (PRP it))))",
    "(S (NP (PRP she)) (VP (VBD said) (SBAR (S (NP (PRP he)) (VP (VBD left))))))",
    "(X (UH yes))",
]


def tree(line: str) -> Tree:
    [read] = read_trees([line], "test")
    return read


TREES = [tree(line) for line in LINES]


@given(st.integers(0, 10**6))
def test_rules_are_those_of_the_given_trees(seed: int) -> None:
    rules = {rule for one in TREES for rule in rules_of(one)}
    phrases, draw = Phrases(TREES), random.Random(seed)
    for one in TREES:
        made = phrases.recombined(one, draw)
        if made is not None:
            assert rules_of(made) <= rules
            assert made.label == one.label
            assert len(made.words()) <= max(len(each.words()) for each in TREES)
            assert made != one


def rules_of(one: Tree) -> set[tuple[str, ...]]:
    return {
        (
            node.label,
            *(child.label if child.word is None else child.word for child in node.children),
        )
        for node in one.nodes()
        if node.word is None
    }


def test_phrases_move_between_trees() -> None:
    phrases, draw = Phrases(TREES), random.Random(1)
    made = {bracketed(new) for _ in range(300) if (new := phrases.recombined(TREES[0], draw))}
    assert "(S (NP (PRP she)) (VP (VBZ barks)))" in made
    assert len(made) > 5


def test_a_new_sentence_may_be_as_long_as_the_longest() -> None:
    """But for the length, these two can be recombined at will."""
    one, other = (
        "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))",
        "(S (NP (DT a) (NN cat)) (VP (VBZ x)))",
    )
    phrases, draw = Phrases(map(tree, (one, other))), random.Random(1)
    made = {bracketed(new) for _ in range(300) if (new := phrases.recombined(tree(one), draw))}
    assert other in made
    assert len(made) == 3


def test_phrases_are_taken_from_the_first_trees_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recombining, "MOST_TREES", 1)
    phrases, draw = Phrases(TREES), random.Random(1)
    assert not any(phrases.recombined(TREES[0], draw) for _ in range(300))


def test_of_a_tree_without_phrases_nothing_is_made() -> None:
    assert Phrases(TREES).recombined(TREES[3], random.Random(1)) is None


def test_a_tree_of_any_depth_is_recombined() -> None:
    deep = Tree("NN", word="dog")
    for _ in range(3000):
        deep = Tree("NP", (deep,))
    made = Phrases([deep]).recombined(deep, random.Random(1))
    assert made is None or made.words() == ["dog"]
