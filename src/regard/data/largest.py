"""Make the largest batch that can occur in training, of the longest sentences that are allowed.

A training step on this batch shows how much memory a run needs.
"""

import numpy as np

from regard.data.batches import WINDOW_PAIRS, Batch, Batches, BatchShare
from regard.data.layouts import grouped, packed_rows
from regard.data.pair_source import ArbitraryPairs, PairSource
from regard.recipe import DataRecipe


def largest_batch(
    pairs: PairSource, rules: DataRecipe, vocabulary: int, parts: int, *, join: bool = True
) -> Batch:
    """The largest part that a batch of `pairs` can have, if batches are divided into `parts` parts.

    The token ids of this part are arbitrary numbers below `vocabulary`. In the grouped layout, if
    `join` is True, a row of real data may hold several pairs. The size is then an estimate: in
    another epoch, other pairs may share a row, and that row may be longer. Raises the errors of
    `Batches.take`.
    """
    packed = rules.layout == "packed"
    count, source, target = _packed(rules) if packed else _grouped(pairs, rules, join)
    lengths = np.full((2, count), [[source], [target]], np.int32)
    sentences = ArbitraryPairs(lengths, (vocabulary, vocabulary))
    share = BatchShare(0, 1, parts)
    batch = Batches(sentences, rules, 1, layout=rules.layout, share=share).take(1)[0]
    # In the grouped layout, each sentence made here fills a row, and may be longer than max_length.
    # A real sentence is never so long. So after max_length tokens, positions begin again at 0.
    return batch._replace(
        source=batch.source._replace(positions=batch.source.positions % rules.max_length),
        target=batch.target._replace(positions=batch.target.positions % rules.max_length),
    )


def _packed(rules: DataRecipe) -> tuple[int, int, int]:
    """The number of pairs that fill a batch, and the length of their sources and targets."""
    length = min(rules.max_length, rules.row_length)
    return packed_rows(rules) * (rules.row_length // length), length, length


def _grouped(pairs: PairSource, rules: DataRecipe, join: bool) -> tuple[int, int, int]:
    """The number of rows of the largest batch, and the lengths of a source and a target row.

    The batch has about as many source tokens and about as many target tokens as the limits allow.
    """
    source, target = (
        np.asarray(lengths[:WINDOW_PAIRS], np.int64)
        for lengths in (pairs.source_lengths, pairs.target_lengths)
    )
    plan = grouped(source, target, rules, join=join)
    begins = np.union1d(plan.starts[:-1], np.flatnonzero(np.diff(plan.rows)) + 1)
    limits = rules.source_tokens, rules.target_tokens
    rows = 1
    for lengths, limit in zip((source, target), limits, strict=True):
        longest = int(np.add.reduceat(lengths[plan.pairs], begins).max())
        rows = max(rows, -(-limit // max(longest, min(rules.max_length, limit))))
    rows = min(rows, *limits)  # each row has at least one token on each side
    return rows, limits[0] // rows, limits[1] // rows
