"""Several processes divide the batches of one among themselves, evenly and without remainder."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batches import Batch, Batches, BatchShare
from regard.recipe import DataRecipe

RECIPE = DataRecipe(source_tokens=64, target_tokens=64, row_length=16)
LAYOUTS = ["grouped", "packed"]


class Numbered:
    """Pairs of several lengths; each pair repeats a number of its own."""

    def __init__(self) -> None:
        self.source_lengths, self.target_lengths = np.random.default_rng(1).integers(3, 9, (2, 97))

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, i: int, /) -> np.ndarray:
        return np.full(self.source_lengths[i], 3 + i)

    def target(self, i: int, /) -> np.ndarray:
        return np.full(self.target_lengths[i], 3 + i)


def batches(layout: Any, share: BatchShare) -> Batches:
    return Batches(Numbered(), RECIPE, 1, layout=layout, share=share)


def rows(some: list[Batch]) -> list[list[int]]:
    """The rows of source tokens that are not empty, without padding, in order of their tokens."""
    every = (row[row != 0].tolist() for batch in some for row in batch.source.ids)
    return sorted(filter(None, every))


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_an_even_share_is_the_same_for_all_and_no_finer_than_it_must(
    processes: int, taken: int, parts: int
) -> None:
    found = BatchShare.even(0, processes, taken, parts).parts
    assert found == next(n for n in range(parts, 999) if n * taken % processes == 0)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(deadline=None, max_examples=20)
@given(processes=st.integers(1, 4), taken=st.integers(1, 4), parts=st.integers(1, 3))
def test_each_process_takes_as_much_and_nothing_twice(
    layout: str, processes: int, taken: int, parts: int
) -> None:
    shares = [BatchShare.even(rank, processes, taken, parts) for rank in range(processes)]
    divided = [batches(layout, share) for share in shares]
    whole = batches(layout, BatchShare())
    for _ in range(3):
        mine = [one.take(taken) for one in divided]
        assert {len(one) for one in mine} == {taken * shares[0].parts // processes}
        assert rows([batch for one in mine for batch in one]) == rows(whole.take(taken))


def test_a_position_that_is_restored_begins_with_the_first_process() -> None:
    first, second = (batches("packed", BatchShare(rank, 2, 1)) for rank in (0, 1))
    start = first.state()
    assert rows(first.take(1))
    assert not second.take(1)
    for one in (first, second):
        one.restore(start)
    assert rows(first.take(1))
    assert not second.take(1)
