import re

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.layouts import grouped, packed, refuse_more_parts, refuse_without_room
from regard.errors import TrainingError
from regard.recipe import DataRecipe


def mixed_lengths(pairs, longest=29):
    random = np.random.default_rng(pairs)
    source = np.clip(random.lognormal(2.3, 0.45, pairs), 1, longest)
    target = np.clip(source * random.normal(1.05, 0.15, pairs), 1, longest)
    return source.astype(np.int64), target.astype(np.int64)


def limits(tokens, row_length=256):
    return DataRecipe(source_tokens=tokens, target_tokens=tokens, row_length=row_length)


def batches_of(plan):
    """The (pairs, rows) of each batch."""
    bounds = zip(plan.starts[:-1], plan.starts[1:], strict=True)
    return [(plan.pairs[begin:end], plan.rows[begin:end]) for begin, end in bounds]


def padding(plan, *sides):
    """The share of padding, counted row by row."""
    slots = 0
    for pairs, rows in batches_of(plan):
        for lengths in sides:
            in_row = [0] * (max(rows) + 1)
            for pair, row in zip(pairs, rows, strict=True):
                in_row[row] += lengths[pair]
            slots += len(in_row) * max(in_row)
    return 1 - sum(lengths.sum() for lengths in sides) / slots


def most_pairs_in_a_row(plan):
    return max(np.bincount(rows).max() for _, rows in batches_of(plan))


def fill(plan, lengths, recipe):
    rows = recipe.source_tokens // recipe.row_length
    return lengths.sum() / (len(batches_of(plan)) * rows * recipe.row_length)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 2999), st.integers(256, 4999))
def test_grouped_padding_is_small_from_a_dozen_batches(pairs, tokens):
    source, target = mixed_lengths(pairs)
    plan = grouped(source, target, limits(tokens))
    assert padding(plan, source, target) <= 0.05 or len(batches_of(plan)) < 12


def test_rows_hold_one_pair_where_that_pads_little():
    source = np.tile(np.arange(3, 20), 31)
    plan = grouped(source, source + 2, limits(211))
    assert most_pairs_in_a_row(plan) == 1
    assert padding(plan, source, source + 2) <= 0.05


def test_rows_are_joined_where_one_pair_would_pad_much():
    source, target = mixed_lengths(3001)
    plan = grouped(source, target, limits(1699))
    assert most_pairs_in_a_row(plan) == 2  # it would take 4 if rows were first joined by their sums
    assert padding(plan, source, target) <= 0.05
    assert most_pairs_in_a_row(grouped(source, target, limits(1699), join=False)) == 1


def test_rows_are_not_joined_beyond_the_limits():
    source = np.array([23, 23, 5, 5, 11])
    plan = grouped(source, source, limits(23))
    assert sorted(plan.pairs) == [0, 1, 2, 3, 4]
    for pairs, rows in batches_of(plan):
        assert np.bincount(rows, source[pairs]).max() * (max(rows) + 1) <= 23


@pytest.mark.parametrize("layout", ["grouped", "packed"])
def test_a_sentence_of_the_greatest_length_has_room(layout):
    sizes = {"source_tokens": 24, "target_tokens": 24, "row_length": 24, "layout": layout}
    refuse_without_room(DataRecipe(max_length=24, **sizes))
    with pytest.raises(TrainingError, match=r"= 24 has no room for .* data.max_length = 25"):
        refuse_without_room(DataRecipe(max_length=25, **sizes))


def test_a_batch_is_divided_into_as_many_parts_as_it_may_have_rows():
    recipe = DataRecipe(source_tokens=72, target_tokens=96, row_length=24, layout="packed")
    refuse_more_parts(3, recipe)
    with pytest.raises(TrainingError, match="--micro-batches 4: a batch has at most 3 rows"):
        refuse_more_parts(4, recipe)


def test_packed_rows_are_full():
    source, target = mixed_lengths(4999)
    recipe = limits(1024, row_length=128)
    plan = packed(source, target, recipe, np.random.default_rng(1))
    assert fill(plan, source, recipe) > 0.9
    assert fill(plan, target, recipe) > 0.9


def test_long_pairs_are_spread_over_packed_batches():
    source, target = mixed_lengths(4999)
    long = np.quantile(source, 0.9)
    plan = packed(source, target, limits(1024, row_length=128), np.random.default_rng(1))
    with_long = [(source[pairs] >= long).any() for pairs, _ in batches_of(plan)]
    assert np.mean(with_long) > 0.6  # it would be a third if rows kept the order of packing


@pytest.fixture(scope="module")
def multi30k(regard_data):
    folder = regard_data / "multi30k"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    sides = [
        (folder / f"train.{language}").read_text(encoding="utf-8").splitlines()
        for language in ("en", "de")
    ]
    library = tokenizers.ByteLevelBPETokenizer()
    some = sides[0][::4] + sides[1][::4]
    library.train_from_iterator(some, vocab_size=8000, show_progress=False)
    return [lengths_of(library, side) for side in sides]


def lengths_of(library, lines):
    """The tokens of each line, with the end of sentence; each different word is encoded once."""
    lines = [re.findall(" *[^ ]+| +$", line) for line in lines]
    words = list({word for line in lines for word in line})
    tokens = dict(zip(words, (len(e.ids) for e in library.encode_batch(words)), strict=True))
    return np.array([sum(tokens[word] for word in line) + 1 for line in lines])


@pytest.mark.data
@pytest.mark.parametrize(("tokens", "most"), [(4096, 0.035), (25_000, 0.05)])
def test_multi30k_grouped_is_padded_little(multi30k, tokens, most):
    # Sorted by the target's length, then by the source's, it would be 0.045 for 4,096 tokens.
    assert padding(grouped(*multi30k, limits(tokens)), *multi30k) < most


@pytest.mark.data
@pytest.mark.parametrize("tokens", [4096, 25_000])
def test_multi30k_packed_is_90_percent_full(multi30k, tokens):
    plan = packed(*multi30k, limits(tokens), np.random.default_rng(1))
    assert min(fill(plan, lengths, limits(tokens)) for lengths in multi30k) > 0.9
