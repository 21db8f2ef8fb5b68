"""Sentences laid out in rows."""

import torch

from regard.data.rows import one_per_row


def test_one_sentence_a_row_is_padded_at_the_end():
    rows = one_per_row([[5, 6, 2], [2], [], [7, 2]])
    assert rows.ids.tolist() == [[5, 6, 2], [2, 0, 0], [0, 0, 0], [7, 2, 0]]
    assert rows.segments.tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]]
    assert rows.positions.tolist() == [[0, 1, 2], [0, 0, 0], [0, 0, 0], [0, 1, 0]]
    assert all(tensor.dtype == torch.int64 for tensor in rows)


def test_no_sentences_give_no_rows():
    assert one_per_row([]).ids.shape == (0, 0)
