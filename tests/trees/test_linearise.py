"""A tree becomes a sequence and back without loss; a wrong sequence is refused with a reason."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.trees.linearise import IllFormed, delinearise, linearise
from regard.trees.penn import read_trees
from regard.trees.tree import Tree
from trees.strategies import chain, random_tree, trees


def there_and_back(tree: Tree) -> bool:
    words, tags = tree.words(), tree.tags()
    return (
        delinearise(linearise(tree), words)
        == delinearise(linearise(tree, "normalised"), words, tags)
        == tree
    )


@pytest.mark.parametrize(
    ("tree", "tags", "normalised"),
    [
        (
            "(S (NP (DT The) (NN dog)) (VP (VBZ barks)) (. .))",
            "(S (NP DT NN )NP (VP VBZ )VP . )S",
            "(S (NP XX XX )NP (VP XX )VP XX )S",
        ),
        ("(NN dog)", "NN", "XX"),
        ("( (NP (NP (NN dog))))", "( (NP (NP NN )NP )NP )", "( (NP (NP XX )NP )NP )"),
        ("(S (-LRB- -LRB-) (XX a) (`` ``))", "(S -LRB- XX `` )S", "(S XX XX XX )S"),
    ],
)
def test_by_hand(tree: str, tags: str, normalised: str) -> None:
    [read] = read_trees([tree], "hand")
    assert linearise(read) == tags.split()
    assert linearise(read, "normalised") == normalised.split()
    assert there_and_back(read)


def test_labels_that_look_like_tokens() -> None:
    odd = Tree("(NP", (Tree(")S", word="(X"), Tree("", word=")X"), Tree("a b\\", word="")))
    assert linearise(odd) == [r"(\28;NP", r"\29;S", r"\;", r"a\20;b\5c;", r")\28;NP"]
    assert there_and_back(odd)


@given(trees())
def test_any_tree_comes_back(tree: Tree) -> None:
    tokens = linearise(tree)
    assert there_and_back(tree)
    assert " ".join(tokens).split() == tokens
    leaves = [token for token in tokens if token[0] not in "()"]
    assert len(leaves) == len(tree.words())


def test_3_000_random_trees_come_back() -> None:
    dice = random.Random(5)
    some = [random_tree(dice) for _ in range(3_000)]
    assert len(set(some)) > 2_700
    assert all(map(there_and_back, some))


@pytest.mark.parametrize("branch", [False, True])
def test_depth_is_no_obstacle(branch: bool) -> None:
    assert there_and_back(chain(20_000, branch))


def test_width_is_no_obstacle() -> None:
    assert there_and_back(Tree("S", (Tree("NN", word="a"),) * 50_000))


def test_words_and_tags_are_those_that_are_given() -> None:
    tokens = ["(NP", "DT", "NN", ")NP"]
    assert str(delinearise(tokens, ["a", "b"])) == "(NP (DT a) (NN b))"
    assert str(delinearise(tokens, ["a", "b"], ["X", "Y"])) == "(NP (X a) (Y b))"
    with pytest.raises(ValueError, match="1 tags for 2 words"):
        delinearise(tokens, ["a", "b"], ["X"])


@pytest.mark.parametrize(
    ("tokens", "position", "problem"),
    [
        ("", 1, "the sequence ends, and the tree is missing"),
        ("(S NN NN", 4, "the sequence ends, and (S is not closed"),
        ("(S (NP NN )NP NN", 6, "the sequence ends, and (S is not closed"),
        ("(S NN )NP", 3, "')NP' closes '(S', opened by token 1"),
        (")S", 1, "')S' closes a phrase where none is open"),
        ("(S (NP )NP NN NN )S", 3, "')NP' closes a phrase that has nothing in it"),
        ("(S NN NN NN )S", 4, "'NN' is one leaf too many for 2 words"),
        ("(S NN )S", 3, "')S' ends the tree after 1 of 2 leaves"),
        ("(S NN NN )S )S", 5, "')S' comes after the end of the tree"),
        ("(S NN )S (S NN )S", 4, "'(S' comes after the end of the tree"),
        ("NN NN", 2, "'NN' comes after the end of the tree"),
    ],
)
def test_a_sequence_that_is_not_a_tree_is_refused(tokens: str, position: int, problem: str) -> None:
    with pytest.raises(IllFormed) as caught:
        delinearise(tokens.split(), ["a", "b"])
    assert caught.value.position == position
    assert str(caught.value) == f"token {position}: {problem}"


@given(
    st.lists(
        st.sampled_from(["(S", ")S", "(NP", ")NP", "NN", "(", ")", "", "\\d800;"]) | st.text()
    ),
    st.lists(st.text(), max_size=4),
)
def test_any_sequence_gives_a_tree_over_the_words_or_is_ill_formed(
    tokens: list[str], words: list[str]
) -> None:
    try:
        tree = delinearise(tokens, words)
    except IllFormed as error:
        assert 1 <= error.position <= len(tokens) + 1
    else:
        assert tree.words() == words
