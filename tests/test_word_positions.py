"""Positions counted in words, against counting word by word."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.corpus import example
from regard.data.rows import Places, Rows, one_per_row
from regard.data.tree_encoding import as_text
from regard.errors import ModelError, RecipeError
from regard.presets import SMALL_PARSE
from regard.recipe import Recipe
from regard.text.tokenizer import BOS, EOS, Tokenizer
from regard.transformer import Transformer
from regard.trees.linearise import linearise
from regard.trees.penn import read_trees
from regard.trees.strip import stripped
from regard.trees.tree import Tree
from regard.word_positions import STRIDE, WordEmbedding, begin_words, know_words, know_words_of

RECIPE = SMALL_PARSE.but(positions="words", d_model=16, d_ff=16, heads=2, vocabulary=400)


def tree(number: int) -> Tree:
    [read] = read_trees([example(7, number).tree], "test")
    found = stripped(read)
    assert found is not None
    return found


TREES = [tree(number) for number in range(30)]
SYMBOLS = sorted({token for one in TREES for token in linearise(one)})
TOKENIZER = Tokenizer.learn([as_text(one.words()) for one in TREES], "bpe", 400, SYMBOLS)


def model() -> Transformer:
    torch.manual_seed(5)
    made = Transformer(RECIPE.model, TOKENIZER.size).eval()
    know_words(made, TOKENIZER)
    return made


def encoded(one: Tree) -> tuple[list[int], list[int]]:
    """The source with </s>, and the decoder's input, which begins with <s>."""
    [source] = TOKENIZER.encode([as_text(one.words())])
    return [*source, EOS], [BOS, *(TOKENIZER.symbols[token] for token in linearise(one))]


def counted(begins: list[bool]) -> list[int]:
    """The place of each token of a sentence, by counting."""
    found, word, inside = [], 0, 0
    for number, begin in enumerate(begins):
        word, inside = (word + (number > 0), 0) if begin or not number else (word, inside + 1)
        found.append(STRIDE * word + min(inside, STRIDE - 1))
    return found


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=4))
def test_places_are_counted_in_each_sentence_of_a_row(sentences: list[list[bool]]) -> None:
    embedding = WordEmbedding(RECIPE.model, 2)
    embedding.begins = torch.tensor([False, True])
    lengths = [len(begins) for begins in sentences]
    ids = torch.tensor([begin for begins in sentences for begin in begins]).numpy().astype(int)
    width = sum(lengths) + 3  # three of padding
    rows = Places.of(
        torch.tensor(lengths).numpy(), torch.zeros(len(lengths)).numpy().astype(int), (1, width)
    ).rows(ids)
    [places] = embedding.counted(*rows).tolist()
    assert places[:-3] == [place for begins in sentences for place in counted(begins)]
    assert min(places) == 0
    assert max(places) < len(embedding.table(width))


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_position_after_position_gives_the_positions_of_a_row(begins: list[bool]) -> None:
    embedding = WordEmbedding(RECIPE.model, 2)
    embedding.begins = torch.tensor([False, True])
    begins[0] = True  # as of <s>
    place = torch.tensor([[-1]])
    for begin, expected in zip(begins, counted(begins), strict=True):
        place = embedding.position_after(torch.tensor([[int(begin)]]), place)
        assert place.item() == expected


def test_a_leaf_is_predicted_from_the_place_of_its_word() -> None:
    """The token before a leaf, and the brackets before that, are at the word, as its pieces are."""
    begins = torch.from_numpy(begin_words(TOKENIZER))
    leaves = torch.zeros(TOKENIZER.size, dtype=torch.bool)
    for name, number in TOKENIZER.symbols.items():
        leaves[number] = not name.startswith(("(", ")"))
    for one in TREES:
        source, target = encoded(one)
        assert int(begins[source].sum()) == len(one.words()) + 1  # and </s>
        shifted = torch.tensor(counted(begins[target].tolist())) // STRIDE
        is_leaf = leaves[torch.tensor([*target[1:], EOS])]
        assert shifted[is_leaf].tolist() == list(range(len(one.words())))


def test_a_step_computes_what_decode_computes() -> None:
    network, pairs = model(), [encoded(one) for one in TREES[:4]]
    source, target = one_per_row([s for s, _ in pairs]), one_per_row([t for _, t in pairs])
    expected = network(source, target)
    state = network.start(source)
    for position in range(min(len(t) for _, t in pairs)):
        logits, state = network.step(target.ids[:, position], state)
        torch.testing.assert_close(logits, expected[:, position], atol=1e-5, rtol=1e-5)


def test_a_selected_row_keeps_its_place() -> None:
    network = model()
    (source, long), (_, short) = encoded(TREES[0]), encoded(TREES[1])
    state = network.start(one_per_row([source])).select(torch.tensor([[0, 0]]))
    both = one_per_row([long[:6], short[:6]]).ids
    for position in range(6):
        _, state = network.step(both[:, position], state)
    swapped = state.select(torch.tensor([[1, 0]]))
    assert swapped.position.flatten().tolist() == state.position.flatten().tolist()[::-1]


def test_sentences_of_a_row_are_read_as_in_rows_of_their_own() -> None:
    network, pairs = model(), [encoded(one) for one in TREES[:3]]
    alone = [network(one_per_row([s]), one_per_row([t])) for s, t in pairs]
    packed = network(*(_in_one_row([pair[side] for pair in pairs]) for side in (0, 1)))
    torch.testing.assert_close(packed, torch.cat(alone, 1), atol=1e-5, rtol=1e-5)


def _in_one_row(sentences: list[list[int]]) -> Rows:
    lengths = torch.tensor([len(sentence) for sentence in sentences]).numpy()
    ids = torch.tensor([i for sentence in sentences for i in sentence]).numpy()
    return Places.of(lengths, 0 * lengths).rows(ids)


def test_without_its_tokenizer_a_model_refuses() -> None:
    network = Transformer(RECIPE.model, TOKENIZER.size)
    source, target = encoded(TREES[0])
    with pytest.raises(ModelError, match="needs its tokenizer"):
        network(one_per_row([source]), one_per_row([target]))


def test_a_model_learns_from_another_which_tokens_begin_a_word() -> None:
    source, target = (one_per_row([ids]) for ids in encoded(TREES[0]))
    network, other = model(), Transformer(RECIPE.model, TOKENIZER.size).eval()
    other.load_state_dict(network.state_dict())
    know_words_of(network, other)
    assert torch.equal(other(source, target), network(source, target))


def test_words_are_counted_by_a_transformer_that_parses() -> None:
    with pytest.raises(RecipeError, match="is for a parser"):
        Recipe().but(positions="words")
    with pytest.raises(RecipeError, match="is for the transformer"):
        RECIPE.but(family="recurrent")
