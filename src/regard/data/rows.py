"""Sentences in rows of equal length: the form in which a model reads text.

A row may hold several sentences, which have the segment numbers 1, 2 and so on. The rest of the row
is padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.data.layouts import Integers
from regard.machine.devices import moved


class Rows(NamedTuple):
    """The source or the target of a batch."""

    ids: Int[Tensor, "rows length"]
    """Token ids; 0 is padding."""
    segments: Int[Tensor, "rows length"]
    """The number of each token's sentence in its row: 1, 2 and so on; 0 is padding."""
    positions: Int[Tensor, "rows length"]
    """The position of each token in its sentence, from 0; 0 in padding."""

    def to(self, device: torch.device | str) -> Rows:
        """The rows on this device; a copy to a GPU may not yet be done when the call returns."""
        return Rows(*(moved(tensor, device) for tensor in self))

    def of(self, rows: slice) -> Rows:
        """A view of these rows, without the columns at the end that are only padding.

        At least one column is kept.
        """
        width = max(1, int(self.segments[rows].any(0).sum()))
        return Rows(*(tensor[rows, :width] for tensor in self))

    def twice(self) -> Rows:
        """All rows, then all rows again."""
        return Rows(*(torch.cat([tensor, tensor]) for tensor in self))

    @property
    def tokens(self) -> int:
        """Number of positions that are not padding."""
        return int((self.segments != 0).sum())


def one_per_row(sentences: Sequence[Sequence[int]]) -> Rows:
    """One sentence in each row, padded to the length of the longest sentence."""
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    tokens = np.fromiter(chain.from_iterable(sentences), np.int64, count=lengths.sum())
    shape = len(sentences), int(lengths.max(initial=0))
    return Places.of(lengths, np.arange(len(sentences)), shape).rows(tokens)


class Places(NamedTuple):
    """Where the tokens of some sentences stand in a matrix of rows x length.

    In each array, the tokens of the first sentence come first, then those of the second, etc.
    """

    slots: Integers
    """[tokens] The index of each token in the flattened matrix."""
    segments: Integers
    """[tokens] The segment number of each token, from 1."""
    positions: Integers
    """[tokens] The position of each token in its sentence, from 0."""
    shape: tuple[int, int]

    @classmethod
    def of(
        cls, lengths: NDArray[Any], rows: Integers, shape: tuple[int, int] | None = None
    ) -> Places:
        """Put sentences of these lengths into rows, one after another in each row.

        `rows` has the row of each sentence, in ascending order. `shape` is (rows, length). Without
        `shape`, there must be at least one sentence, and the smallest possible shape is used.
        """
        begins = np.cumsum(lengths, dtype=np.int64) - lengths
        first = np.searchsorted(rows, rows)  # index of the first sentence in each sentence's row
        offsets = begins - begins[first]
        shape = shape or (int(rows[-1]) + 1, int((offsets + lengths).max()))
        positions = np.arange(lengths.sum()) - np.repeat(begins, lengths)
        slots = np.repeat(rows * shape[1] + offsets, lengths) + positions
        segments = np.repeat(np.arange(len(rows)) - first + 1, lengths)
        return cls(slots, segments, positions, shape)

    def filled(self, values: NDArray[Any]) -> Int[Tensor, "rows length"]:
        """A matrix that has the value of each token in the token's place, and 0 elsewhere."""
        flat = np.zeros(self.shape[0] * self.shape[1], np.int64)
        flat[self.slots] = values
        return torch.from_numpy(flat.reshape(self.shape))

    def rows(self, ids: NDArray[Any]) -> Rows:
        """Rows that hold these token ids in their places."""
        return Rows(self.filled(ids), self.filled(self.segments), self.filled(self.positions))
