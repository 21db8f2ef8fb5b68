"""§5.1 Which pairs share a row, and which rows a batch: the plans of the two layouts.

`grouped` gathers rows of like length, one pair in each where that leaves little padding; `packed`
fills rows of one fixed length. Both see lengths only, and both are numpy over all pairs at once:
there is no Python loop over pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import TrainingError
from regard.recipe import DataRecipe

MOST_PADDING = 0.05
"""Share of padding, both sides together, above which grouped rows are joined."""
_LANE = 1024  # pairs whose rows are packed together: with fewer, the last rows stay half empty

Integers = NDArray[np.int64]


class BatchPlan(NamedTuple):
    """Which pairs stand in which row of which batch: batch by batch, and in each row by row."""

    pairs: Integers
    """Indices into the lengths that were planned, each once."""
    rows: Integers
    """The row of its batch that each of these pairs stands in, from 0."""
    starts: Integers
    """Where each batch begins in these two, and last where they end."""


def grouped(source: Integers, target: Integers, recipe: DataRecipe) -> BatchPlan:
    """A plan whose batches hold rows of like length, for lengths of at least 1 within the limits.

    A row is one pair while that leaves little padding. It does not where a corpus makes few
    batches: then rows are joined two by two, once or twice. First the one whose source is longest
    beside its target with the one whose is shortest, and so on: after that both sides differ alike
    in all rows, and to group by one is to group by both. Then the longest with the shortest.

    The price of little padding: pairs of equal lengths stay together, so that about half of those a
    pair meets in one epoch it meets in the next (Multi30k, 4,096 tokens); packed rows mix freely.
    """
    lengths = np.pad([source, target], ((0, 0), (0, 1)))  # the last, [-1], is that of no pair
    limits = np.array([[recipe.source_tokens], [recipe.target_tokens]])
    rows = np.arange(len(source))[:, None]  # [rows, pairs], -1 for none
    order, starts, padding = _cut_by_length(lengths[:, rows].sum(-1), limits)
    for compared in (np.subtract, np.add):
        if padding <= MOST_PADDING:
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
    """Order rows along a snake through the lengths, and cut it into full batches.

    Rows whose longer side is of one length follow each other by the other side, up one time and
    down the next: so both sides differ little in a batch, and it is full on both.
    Returns the order, where in it each batch starts (and last its end), and the share of padding.
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
    """Half as many rows: that of the least value with that of the greatest, and so on inwards."""
    rows = rows[np.argsort(value, kind="stable")]
    if len(rows) % 2:
        rows = np.pad(rows, ((0, 1), (0, 0)), constant_values=-1)
    half = len(rows) // 2
    return np.concatenate([rows[:half], rows[half:][::-1]], axis=1)


def packed_rows(recipe: DataRecipe) -> int:
    """Rows of a packed batch, on either side; 0 where not even one fits."""
    return min(recipe.source_tokens, recipe.target_tokens) // recipe.row_length


def refuse_without_row(recipe: DataRecipe) -> None:
    """Raise TrainingError where a packed batch has no room for a row."""
    if not packed_rows(recipe):
        raise TrainingError(
            f"a batch of data.source_tokens = {recipe.source_tokens} and data.target_tokens = "
            f"{recipe.target_tokens} holds no row of data.row_length = {recipe.row_length}: "
            "raise the former or lower the latter"
        )


def refuse_without_room(recipe: DataRecipe) -> None:
    """Raise TrainingError where a sentence may be kept that no batch could hold."""
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
    """A batch has no more rows than this."""
    if recipe.layout == "packed":
        return packed_rows(recipe)
    return min(recipe.source_tokens, recipe.target_tokens) // 2  # a sentence and its </s>


def refuse_more_parts(parts: int, recipe: DataRecipe) -> None:
    """Raise TrainingError where a batch cannot be cut into so many parts."""
    if parts > (most := max(1, most_rows(recipe))):
        raise TrainingError(f"--micro-batches {parts}: a batch has at most {most} rows to divide")


def packed(
    source: Integers, target: Integers, recipe: DataRecipe, random: np.random.Generator
) -> BatchPlan:
    """A plan of rows filled by best fit, in random order, dealt evenly to the fewest batches."""
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
    """The row of each pair, from 0: longest first, each where least room is left on both sides.

    Pairs are dealt to lanes that share no rows, so that one step of numpy places a pair in each.
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
