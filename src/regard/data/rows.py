"""Sentences in rows of one width: the form in which a model is given text.

A row may hold several sentences, told apart by segment numbers; what is left of it is padding.
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


class Rows(NamedTuple):
    """One side of a batch."""

    ids: Int[Tensor, "rows length"]
    """Tokens; 0 is padding."""
    segments: Int[Tensor, "rows length"]
    """1, 2, ... number the sentences of a row; 0 is padding."""
    positions: Int[Tensor, "rows length"]
    """Counted from 0 within each sentence; 0 in padding."""

    def to(self, device: torch.device | str) -> Rows:
        """The same on another device."""
        return Rows(*(moved(tensor, device) for tensor in self))

    def of(self, rows: slice) -> Rows:
        """These of the rows, no wider than their longest, as views; of padding alone, 1 wide."""
        width = max(1, int(self.segments[rows].any(0).sum()))
        return Rows(*(tensor[rows, :width] for tensor in self))

    @property
    def tokens(self) -> int:
        """Positions that are not padding."""
        return int((self.segments != 0).sum())


def one_per_row(sentences: Sequence[Sequence[int]]) -> Rows:
    """The plain case: a sentence a row, padded to the longest."""
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    tokens = np.fromiter(chain.from_iterable(sentences), np.int64, count=lengths.sum())
    shape = len(sentences), int(lengths.max(initial=0))
    return Places.of(lengths, np.arange(len(sentences)), shape).rows(tokens)


class Places(NamedTuple):
    """Where the tokens of some sentences stand in rows x length."""

    slots: Integers
    """Of each token, with the rows laid end to end."""
    segments: Integers
    positions: Integers
    shape: tuple[int, int]

    @classmethod
    def of(
        cls, lengths: NDArray[Any], rows: Integers, shape: tuple[int, int] | None = None
    ) -> Places:
        """Sentence after sentence in its row; rows ascend. Without a shape, the smallest."""
        begins = np.cumsum(lengths, dtype=np.int64) - lengths
        first = np.searchsorted(rows, rows)  # sentence of each one's row
        offsets = begins - begins[first]
        shape = shape or (int(rows[-1]) + 1, int((offsets + lengths).max()))
        positions = np.arange(lengths.sum()) - np.repeat(begins, lengths)
        slots = np.repeat(rows * shape[1] + offsets, lengths) + positions
        segments = np.repeat(np.arange(len(rows)) - first + 1, lengths)
        return cls(slots, segments, positions, shape)

    def filled(self, values: NDArray[Any]) -> Int[Tensor, "rows length"]:
        """One value a token; 0 elsewhere."""
        flat = np.zeros(self.shape[0] * self.shape[1], np.int64)
        flat[self.slots] = values
        return torch.from_numpy(flat.reshape(self.shape))

    def rows(self, ids: NDArray[Any]) -> Rows:
        """The tokens in their places."""
        return Rows(self.filled(ids), self.filled(self.segments), self.filled(self.positions))


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The same on another device; a GPU need not be waited for."""
    if torch.device(device).type == "cuda" and not tensor.is_cuda:
        # from pinned memory the copy is queued
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
