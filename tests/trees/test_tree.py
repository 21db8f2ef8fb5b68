"""The tree itself: its content, equality, and any depth."""

import copy
import dataclasses
import pickle

import pytest
from hypothesis import given

from regard.trees.tree import Span, Tree
from trees.strategies import chain, trees

DOG = Tree("NP", (Tree("DT", word="the"), Tree("NN", word="dog")))
BARKS = Tree("S", (DOG, Tree("VP", (Tree("VBZ", word="barks"),)), Tree(".", word=".")))


def test_words_tags_and_spans_of_a_sentence() -> None:
    assert BARKS.words() == ["the", "dog", "barks", "."]
    assert BARKS.tags() == ["DT", "NN", "VBZ", "."]
    assert BARKS.spans() == [Span("NP", 0, 2), Span("VP", 2, 3), Span("S", 0, 4)]
    assert [node.label for node in BARKS.nodes()] == ["S", "NP", "DT", "NN", "VP", "VBZ", "."]
    assert str(BARKS) == "(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))"


def test_a_leaf_is_a_tree_without_phrases() -> None:
    leaf = Tree("NN", word="dog")
    assert (leaf.words(), leaf.tags(), leaf.spans()) == (["dog"], ["NN"], [])


def test_a_node_has_children_or_a_word() -> None:
    with pytest.raises(ValueError, match="either children or a word"):
        Tree("NP")
    with pytest.raises(ValueError, match="either children or a word"):
        Tree("NP", (DOG,), "dog")
    assert Tree("NN", word="").words() == [""]


def test_a_tree_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DOG.label = "VP"  # type: ignore[misc]


@pytest.mark.parametrize(
    "other",
    [
        Tree("VP", DOG.children),
        Tree("NP", DOG.children[::-1]),
        Tree("NP", DOG.children[:1]),
        Tree("NP", (DOG,)),
        Tree("NP", (Tree("DT", word="the"), Tree("NN", word="cat"))),
        Tree("NP", (Tree("DT", (Tree("NN", word="dog"),)), Tree("NN", word="dog"))),
        "(NP (DT the) (NN dog))",
    ],
)
def test_what_differs_is_not_equal(other: object) -> None:
    assert other != DOG
    assert Tree("NP", DOG.children) == DOG


@given(trees())
def test_copies_are_equal_and_hash_alike(tree: Tree) -> None:
    for again in (copy.deepcopy(tree), pickle.loads(pickle.dumps(tree))):
        assert again == tree
        assert hash(again) == hash(tree)


@pytest.mark.parametrize("branch", [False, True])
def test_a_tree_of_100_000_levels(branch: bool) -> None:
    deep = chain(100_000, branch)
    words = 100_001 if branch else 1
    assert len(deep.words()) == words
    assert deep.spans()[-1] == Span("NP", 0, words)
    again = pickle.loads(pickle.dumps(deep))
    assert deep == again
    assert deep != deep.children[-1]
    assert len({deep, again}) == 1
    assert str(deep).endswith(")" * 100_001)
