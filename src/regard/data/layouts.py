"""§5.1 Decide which pairs share a row and which rows share a batch, in one of two layouts.

`grouped` puts rows of similar length into a batch, with one pair in each row if that leaves little
padding; `packed` fills rows of one fixed length with pairs. Both functions see only the lengths of
the pairs, and use numpy operations over many pairs at once instead of a Python loop over pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import TrainingError
from regard.recipe import DataRecipe

MOST_PADDING = 0.05
"""Rows of the grouped layout are joined if more than this fraction of all positions is padding."""
_LANE = 1024
"""`_best_fit` divides the pairs into groups, called lanes, of at most this many pairs. Pairs of
different lanes never share a row. The last row of each lane may stay half empty, so smaller lanes
would leave more half-empty rows."""

Integers = NDArray[np.int64]


class BatchPlan(NamedTuple):
    """The batch and the row of every pair; the pairs are sorted by batch, then by row."""

    pairs: Integers
    """[pairs] The index of each pair in the two arrays of lengths that the plan was made from."""
    rows: Integers
    """[pairs] The number of the row of each pair in its batch, from 0."""
    starts: Integers
    """[batches + 1] The index in `pairs` and `rows` where each batch begins, then the length of
    these two arrays."""


def grouped(
    source: Integers, target: Integers, recipe: DataRecipe, *, join: bool = True
) -> BatchPlan:
    """Plan batches of rows of similar length, for pairs with these source and target lengths.

    All lengths must be at least 1 and within the token limits.

    A row holds one pair, unless this leaves too much padding, as in a corpus of few batches. Then
    rows are joined, two into one, and a second time if there is still too much padding. The first
    time, rows are sorted by source length minus target length; the first row is joined with the
    last, the second with the last but one, and so on. Then this difference is about equal in all
    joined rows, so that rows of similar source length also have similar target lengths. The second
    time, rows are sorted by source length plus target length. If a joining would make any row
    exceed the token limits, this joining and the next are left out. If `join` is False, no rows are
    joined.

    Little padding has a disadvantage: pairs of equal lengths stay together. If two pairs share a
    batch in one epoch, they share a batch again in the next epoch with a probability of about one
    half (Multi30k, batches of 4,096 tokens). Packed rows mix pairs freely.
    """
    # The index -1 stands for "no pair", and gets the length 0.
    lengths = np.pad([source, target], ((0, 0), (0, 1)))
    limits = np.array([[recipe.source_tokens], [recipe.target_tokens]])
    # `rows` is [rows, pairs of a row]: the index of each pair, or -1.
    rows = np.arange(len(source))[:, None]
    order, starts, padding = _cut_by_length(lengths[:, rows].sum(-1), limits)
    for compared in (np.subtract, np.add):
        if not join or padding <= MOST_PADDING:
            break
        joined = _joined(rows, compared(*lengths[:, rows].sum(-1)))
        if (lengths[:, joined].sum(-1) > limits).any():
            break
        rows = joined
        order, starts, padding = _cut_by_length(lengths[:, rows].sum(-1), limits)
    rows = rows[order]
    numbers = np.arange(len(rows)) - np.repeat(starts[:-1], np.diff(starts))
    pairs_before = np.append(0, np.cumsum((rows >= 0).sum(-1)))
    return BatchPlan(
        rows[rows >= 0], np.repeat(numbers, np.diff(pairs_before)), pairs_before[starts]
    )


def _cut_by_length(lengths: Integers, limits: Integers) -> tuple[Integers, Integers, float]:
    """Sort rows by length, and cut them into batches as large as the limits allow.

    Rows are sorted by the length of their longer side. Rows for which this length is equal are
    sorted by source length minus target length: ascending if the equal length is even, descending
    if it is odd. So both lengths vary little within a batch.

    `lengths` is [2, rows], the tokens of each row's source and target; `limits` is [2, 1], the most
    source and target tokens of a batch, padding included. Returns three things: the order of the
    rows; an array that says where in this order each batch begins, followed by the number of rows;
    and the fraction of all positions that is padding.
    """
    source, target = lengths
    longer, more = np.maximum(source, target), source - target
    order = np.lexsort((np.where(longer % 2 == 0, more, -more), longer))
    lengths = lengths[:, order]
    starts = [0]
    while starts[-1] < len(order):
        most = (limits // lengths[:, starts[-1], None]).min()
        widest = np.maximum.accumulate(lengths[:, starts[-1] : starts[-1] + most], axis=1)
        fits = (widest * np.arange(1, widest.shape[1] + 1) <= limits).all(0)
        starts.append(starts[-1] + int(np.count_nonzero(fits)))
    widest = np.maximum.reduceat(lengths, starts[:-1], axis=1)
    return order, np.array(starts), 1 - lengths.sum() / (widest * np.diff(starts)).sum()


def _joined(rows: Integers, value: Integers) -> Integers:
    """Sort rows by `value`; join the first with the last, the second with the last but one, etc.

    If the number of rows is odd, a row of -1, which holds no pair, is added as the last row.
    """
    rows = rows[np.argsort(value, kind="stable")]
    if len(rows) % 2:
        rows = np.pad(rows, ((0, 1), (0, 0)), constant_values=-1)
    half = len(rows) // 2
    return np.concatenate([rows[:half], rows[half:][::-1]], axis=1)


def packed_rows(recipe: DataRecipe) -> int:
    """Number of rows of a packed batch, equal on both sides; 0 if not even one row fits."""
    return min(recipe.source_tokens, recipe.target_tokens) // recipe.row_length


def refuse_without_row(recipe: DataRecipe) -> None:
    """Raise TrainingError if the token limits leave no room for one row of a packed batch."""
    if not packed_rows(recipe):
        raise TrainingError(
            f"a batch of data.source_tokens = {recipe.source_tokens} and data.target_tokens = "
            f"{recipe.target_tokens} holds no row of data.row_length = {recipe.row_length}: "
            "raise the former or lower the latter"
        )


def refuse_without_room(recipe: DataRecipe) -> None:
    """Raise TrainingError if data.max_length allows sentences that no batch can hold."""
    holding = ["source_tokens", "target_tokens"]
    if recipe.layout == "packed":
        refuse_without_row(recipe)
        holding = ["row_length"]
    for key in holding:
        if (room := getattr(recipe, key)) < recipe.max_length:
            raise TrainingError(
                f"data.{key} = {room} has no room for a sentence of data.max_length = "
                f"{recipe.max_length}: raise the former or lower the latter"
            )


def most_rows(recipe: DataRecipe) -> int:
    """The most rows that a batch can have."""
    if recipe.layout == "packed":
        return packed_rows(recipe)
    # The shortest source or target has two tokens: one token of text, and </s>.
    return min(recipe.source_tokens, recipe.target_tokens) // 2


def refuse_more_parts(parts: int, recipe: DataRecipe) -> None:
    """Raise TrainingError if `parts` is below 1, or above the most rows that a batch can have."""
    if parts < 1:
        raise TrainingError(f"--micro-batches {parts}: give at least 1")
    if parts > (most := max(1, most_rows(recipe))):
        raise TrainingError(f"--micro-batches {parts}: a batch has at most {most} rows to divide")


def packed(
    source: Integers, target: Integers, recipe: DataRecipe, random: np.random.Generator
) -> BatchPlan:
    """Plan batches of rows of data.row_length, for pairs with these source and target lengths.

    The pairs are put into rows by the best-fit rule. The rows are shuffled by `random`, and divided
    evenly among as few batches as possible. No length may exceed data.row_length.
    """
    row = _best_fit(source, target, recipe.row_length)
    count = int(row.max()) + 1
    place = random.permutation(count)[row]
    pairs = np.argsort(place, kind="stable")
    place = place[pairs]
    batches = -(-count // packed_rows(recipe))
    first = np.arange(batches + 1) * count // batches
    numbers = place - first[np.searchsorted(first, place, side="right") - 1]
    return BatchPlan(pairs, numbers, np.searchsorted(place, first))


def _best_fit(source: Integers, target: Integers, length: int) -> Integers:
    """The row of each pair, from 0, by the best-fit rule; a row has `length` slots on each side.

    Pairs are placed from the longest to the shortest. Each goes into the row where the fewest slots
    would stay free, counted on both sides together. The pairs are divided into lanes, groups with
    separate rows, so that numpy can place a pair in every lane at once.
    """
    order = np.argsort(-(source + target), kind="stable")
    lanes = -(-len(order) // _LANE)
    room = np.full((2, lanes, _LANE + 1), length, np.int32)
    row = np.empty_like(order)
    opened = 0
    for begin in range(0, len(order), lanes):
        chosen = order[begin : begin + lanes]
        lane = np.arange(len(chosen))
        needed = np.stack([source[chosen], target[chosen]])
        left = room[:, : len(chosen), : opened + 1] - needed[..., None]
        slack = np.where((left >= 0).all(0), left.sum(0), 2 * length + 1)
        best = slack.argmin(-1)
        room[:, lane, best] = left[:, lane, best]
        row[chosen] = best * lanes + lane
        opened = max(opened, int(best.max()) + 1)
    return np.unique(row, return_inverse=True)[1]
