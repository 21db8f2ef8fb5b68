"""No batch is larger than `largest_batch`, whatever the lengths of the sentences."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from regard.data.batches import Batches, BatchShare
from regard.data.largest import largest_batch
from regard.recipe import Recipe

VOCABULARY, LAYOUTS = 50, ["grouped", "packed"]
RULES = Recipe().but(source_tokens=64, target_tokens=80, row_length=24, max_length=20).data


class Lengths:
    """Pairs of given lengths."""

    def __init__(self, lengths: list[tuple[int, int]]):
        self.source_lengths, self.target_lengths = np.array(lengths).T

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, i: int, /) -> np.ndarray:
        return np.arange(self.source_lengths[i]) + 2

    def target(self, i: int, /) -> np.ndarray:
        return np.arange(self.target_lengths[i]) + 2


@settings(deadline=None)
@given(
    st.sampled_from(LAYOUTS),
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=80),
    st.sampled_from([1, 2, 3, 8]),
)
def test_no_part_of_a_batch_is_larger(layout, lengths, cuts) -> None:
    rules = RULES.model_copy(update={"layout": layout})
    pairs = Lengths(lengths)
    largest = largest_batch(pairs, rules, VOCABULARY, cuts)
    assert largest.source.ids.max() < VOCABULARY
    batches = Batches(pairs, rules, 1, layout=layout, share=BatchShare(0, 1, cuts))
    parts = [part for part in batches.take(batches.batches_per_epoch) if part.target_tokens]
    assume(layout == "packed" or max(int(p.source.segments.max()) for p in parts) == 1)
    for part in parts:
        for side, most in ((part.source, largest.source), (part.target, largest.target)):
            if layout == "packed":
                assert side.ids.shape == most.ids.shape
            else:  # but for rows that are whole, of whole numbers of tokens
                rounding = len(most.ids) + side.ids.shape[1]
                assert side.ids.numel() <= most.ids.numel() + rounding


@pytest.mark.parametrize("cuts", [1, 3])
@pytest.mark.parametrize(
    ("layout", "rows", "lengths"), [("packed", 2, (24, 24)), ("grouped", 4, (16, 20))]
)
def test_it_is_full(layout, rows, lengths, cuts) -> None:
    """A batch of 64 + 80 tokens has two rows of 24, or four of up to 20."""
    rules = RULES.model_copy(update={"layout": layout, "max_length": 20})
    largest = largest_batch(Lengths([(3, 4)] * 7), rules, VOCABULARY, cuts)
    assert largest.source.ids.shape == (-(-rows // cuts), lengths[0])
    assert largest.target.ids.shape == (-(-rows // cuts), lengths[1])
    if layout == "grouped":
        assert largest.source_tokens == largest.source.ids.numel()
        assert largest.target_tokens == largest.target.ids.numel()


@pytest.mark.parametrize("limits", [(8, 4096), (4096, 8)])
def test_a_side_with_few_tokens_limits_the_rows(limits: tuple[int, int]) -> None:
    tokens = {"source_tokens": limits[0], "target_tokens": limits[1]}
    rules = RULES.model_copy(update={"layout": "grouped", "max_length": 8} | tokens)
    largest = largest_batch(Lengths([(3, 4)] * 7), rules, VOCABULARY, 1)
    assert (largest.source.ids.numel(), largest.target.ids.numel()) == limits


def test_joined_rows_are_longer_than_a_sentence() -> None:
    """Pairs so different in length would be half padding in a batch, so they share a row."""
    rules = RULES.model_copy(update={"layout": "grouped", "max_length": 8})
    pairs = Lengths([(8, 1), (1, 8), (8, 2), (2, 8)])
    batches = Batches(pairs, rules, 1, layout="grouped")
    assert max(batch.source.ids.shape[1] for batch in batches.take(1)) > 8
    largest = largest_batch(pairs, rules, VOCABULARY, 1)
    assert largest.source.ids.shape[1] > 8
    assert int(largest.source.positions.max()) == int(largest.target.positions.max()) == 7
    apart = largest_batch(pairs, rules, VOCABULARY, 1, join=False)
    assert apart.source.ids.shape[1] <= 8
