"""§5.1: "Sentence pairs were batched together by approximate sequence length. Each training batch
contained a set of sentence pairs containing approximately 25000 source tokens and 25000 target
tokens."

A batch has two matrices of token ids, the source and the target, each of rows x length. Row r of
the source and row r of the target hold the same pairs. A row may hold several sentences, which have
different segment numbers. There are two layouts. In "grouped", a batch holds pairs of similar
length, and batches vary in shape. In "packed", every batch has the same shape, and each row is
filled with pairs.

An epoch is a random order of all pairs, cut into windows. Batches are planned one window at a time,
which limits the memory and the time before the first batch. For given pairs and settings, the plan
of a window depends only on the seed, the epoch and the window. Three numbers therefore describe the
place that training has reached in the data: epoch, window, batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.data.layouts import Integers, grouped, packed, packed_rows, refuse_without_row
from regard.data.pair_source import PairSource
from regard.data.rows import Places, Rows
from regard.data.subword_dropout import RedrawnPairs
from regard.errors import DataError, TrainingError
from regard.machine.devices import moved
from regard.recipe import DataRecipe
from regard.text.tokenizer import BOS

WINDOW_PAIRS = 2**19
"""Batches are planned for at most this many pairs at a time (15 to 30 million tokens); the planning
takes less than a second."""

Membership = tuple[Integers, Integers]
"""The pairs of one batch, sorted by row: each pair's index in its window, and each pair's row in
the batch, from 0. A window has at most `WINDOW_PAIRS` pairs, which are planned together."""


class Batch(NamedTuple):
    """A batch of pairs to learn from; row r of source, target and labels holds the same pairs."""

    source: Rows
    """The encoder's input: x_1 ... x_m </s>."""
    target: Rows
    """The decoder's input: <s> y_1 ... y_n, the labels shifted right (§3.1)."""
    labels: Int[Tensor, "rows length"]
    """The expected output: y_1 ... y_n </s>; 0 in padding."""
    source_tokens: int
    """The number of source positions that are not padding."""
    target_tokens: int
    """The number of target positions that are not padding."""

    @property
    def slots(self) -> int:
        """Number of positions on both sides, padding included."""
        return self.source.ids.numel() + self.target.ids.numel()

    def to(self, device: torch.device | str) -> Batch:
        """The batch on this device; a copy to a GPU may not yet be done when the call returns."""
        return self._replace(
            source=self.source.to(device),
            target=self.target.to(device),
            labels=moved(self.labels, device),
        )

    def halves(self) -> list[Batch]:
        """Two batches, each a view of half of the rows; the second gets the odd row, if any."""
        middle = len(self.labels) // 2
        return [self._of(slice(middle)), self._of(slice(middle, None))]

    def _of(self, rows: slice) -> Batch:
        source, target = self.source.of(rows), self.target.of(rows)
        labels = self.labels[rows, : target.ids.shape[1]]
        return Batch(source, target, labels, source.tokens, target.tokens)


class BatchShare(NamedTuple):
    """The share of one of several processes: the parts of the batches that this process takes.

    The rows of every batch are divided into `parts` parts. All parts, batch after batch, are given
    to the processes in turn. A step's gradient is a sum over rows. Apart from rounding and the
    random choices of dropout, the gradient therefore does not depend on how batches are divided.
    """

    rank: int = 0
    """Number of this process, from 0."""
    processes: int = 1
    parts: int = 1
    """The number of parts that each batch is divided into."""

    @classmethod
    def even(cls, rank: int, processes: int, batches: int, parts: int) -> BatchShare:
        """A share with which every process gets the same number of parts in each step.

        A step has `batches` batches. Each batch is divided into at least `parts` parts: the number
        is rounded up until the parts of the whole step can be divided equally among the processes.
        """
        least = processes // math.gcd(processes, batches)
        return cls(rank, processes, -(-parts // least) * least)


WHOLE = BatchShare()
"""All batches, undivided: the share of the only process."""


class Batches:
    """An endless sequence of batches: an epoch has every pair once, and the position can be saved.

    The position counts whole batches, so it does not depend on the `share`.
    """

    def __init__(
        self,
        pairs: PairSource,
        recipe: DataRecipe,
        seed: int,
        *,
        layout: Literal["grouped", "packed"],
        join: bool = True,
        share: BatchShare = WHOLE,
    ):
        """If `join` is False, a row of the grouped layout holds one pair, even a short one.

        Raises DataError if there are no pairs. Raises TrainingError if a batch is too small for one
        row of the packed layout, or if a pair is too long for a row (packed) or a batch (grouped).
        """
        self._pairs, self._recipe, self._seed, self.share = pairs, recipe, seed, share
        self._packed, self._join = layout == "packed", join
        self._refuse_what_does_not_fit()
        self._windows = -(-len(pairs) // WINDOW_PAIRS)
        self._epoch = self._window = self._batch = 0
        self._turn = 0  # rank of the process that takes the next part
        # The epoch's order, its present window and this window's plan are made when needed.
        self._shuffled: tuple[int, NDArray[np.int32]] | None = None
        self._present: PairSource = pairs
        self._planned: tuple[tuple[int, int], list[Membership]] | None = None

    @property
    def epoch(self) -> float:
        """Epochs seen so far, with the fraction of the present epoch: for instance 2.25."""
        return self._epoch + (self._window + self._batch / len(self._plan())) / self._windows

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches of the present epoch.

        If the epoch is read in several windows of pairs, this is an estimate: the batches of the
        present window, times the number of windows.
        """
        return len(self._plan()) * self._windows

    def take(self, n: int) -> list[Batch]:
        """This process's share of the next n batches, on the CPU.

        The batches of an epoch are followed by those of the next epoch. If a batch has fewer rows
        than parts, some parts hold only padding. Raises DataError if a batch is too large for the
        memory.
        """
        return [part for _ in range(n) for part in self._next()]

    def rest_of_epoch(self) -> Iterator[Batch]:
        """This process's share of each batch that remains in the present epoch.

        Raises DataError as `take` does.
        """
        while self._window + 1 < self._windows or self._batch < len(self._plan()):
            yield from self._next()

    def state(self) -> dict[str, int]:
        """The position, for `restore`, and the settings with which the position was counted."""
        position = {"epoch": self._epoch, "window": self._window, "batch": self._batch}
        return position | self._counted_in()

    def restore(self, state: dict[str, int]) -> None:
        """Go to a position that `state` returned, in this process or in an earlier process.

        Raises TrainingError if the position was saved with another number of pairs, or with other
        settings. Whether the pairs themselves are the same is not checked.
        """
        for key, value in self._counted_in().items():
            if state.get(key) != value:
                raise TrainingError(
                    f"the saved position in the data was counted with {key} = {state.get(key)}, "
                    f"but now it is {value}: resume with the same corpus, seed and [data] "
                    "settings, or read the data from its beginning with --accept-changes"
                )
        self._epoch, self._window, self._batch = state["epoch"], state["window"], state["batch"]
        self._turn = 0

    def _counted_in(self) -> dict[str, int]:
        counted = {
            "pairs": len(self._pairs),
            "windows": self._windows,
            "seed": self._seed,
            "source_tokens": self._recipe.source_tokens,
            "target_tokens": self._recipe.target_tokens,
            "row_length": self._recipe.row_length if self._packed else 0,
        }
        return counted if self._join else counted | {"pairs_in_a_row": 1}

    def _next(self) -> list[Batch]:
        while self._batch >= len(self._plan()):
            self._batch, self._window = 0, self._window + 1
            if self._window == self._windows:
                self._window, self._epoch = 0, self._epoch + 1
        self._batch += 1
        pairs, rows = self._plan()[self._batch - 1]
        rank, processes, parts = self.share
        mine = [part for part in range(parts) if (self._turn + part) % processes == rank]
        self._turn = (self._turn + parts) % processes
        members = [rows % parts == part for part in mine]
        try:
            return [self._assembled(pairs[member], rows[member] // parts) for member in members]
        except MemoryError:
            limits = self._recipe.source_tokens, self._recipe.target_tokens
            raise DataError(
                "a batch of {:,} source and {:,} target tokens does not fit the memory: lower "
                "data.source_tokens and data.target_tokens".format(*limits)
            ) from None

    def _assembled(self, pairs: Integers, rows: Integers) -> Batch:
        shape = None if len(pairs) else (1, 1)
        if self._packed:
            shape = -(-packed_rows(self._recipe) // self.share.parts), self._recipe.row_length
        source_places = Places.of(self._present.source_lengths[pairs], rows, shape)
        target_places = Places.of(self._present.target_lengths[pairs], rows, shape)
        source = _concatenated([self._present.source(i) for i in pairs.tolist()])
        target = _concatenated([self._present.target(i) for i in pairs.tolist()])
        shifted = np.where(target_places.positions == 0, BOS, np.roll(target, 1))
        return Batch(
            source=source_places.rows(source),
            target=target_places.rows(shifted),
            labels=target_places.filled(target),
            source_tokens=len(source),
            target_tokens=len(target),
        )

    def _plan(self) -> list[Membership]:
        now = self._epoch, self._window
        if self._planned is None or self._planned[0] != now:
            begin, end = (len(self._pairs) * w // self._windows for w in (now[1], now[1] + 1))
            self._present = self._window_of(self._order()[begin:end])
            source = np.asarray(self._present.source_lengths, np.int64)
            target = np.asarray(self._present.target_lengths, np.int64)
            random = self._generator(*now)
            if self._packed:
                plan = packed(source, target, self._recipe, random)
            else:
                plan = grouped(source, target, self._recipe, join=self._join)
            cuts = plan.starts[1:-1]
            pairs, rows = np.split(plan.pairs, cuts), np.split(plan.rows, cuts)
            turns = random.permutation(len(pairs))
            self._planned = now, [(pairs[turn], rows[turn]) for turn in turns]
        return self._planned[1]

    def _window_of(self, indices: NDArray[np.int32]) -> PairSource:
        if isinstance(self._pairs, RedrawnPairs):
            random = self._generator(self._epoch, self._window, 0)
            rooms = self._room("source")[1], self._room("target")[1]
            return self._pairs.drawn(indices, self._recipe, rooms, random)
        return _Some(self._pairs, indices)

    def _order(self) -> NDArray[np.int32]:
        if self._shuffled is None or self._shuffled[0] != self._epoch:
            order = np.arange(len(self._pairs), dtype=np.int32)
            self._generator(self._epoch).shuffle(order)
            self._shuffled = self._epoch, order
        return self._shuffled[1]

    def _generator(self, *key: int) -> np.random.Generator:
        return np.random.Generator(
            np.random.PCG64(np.random.SeedSequence(self._seed, spawn_key=key))
        )

    def _refuse_what_does_not_fit(self) -> None:
        recipe = self._recipe
        if not len(self._pairs):
            raise DataError("there are no sentence pairs to make batches of: give at least one")
        if self._packed:
            refuse_without_row(recipe)
        sides = ("source", self._pairs.source_lengths), ("target", self._pairs.target_lengths)
        for side, lengths in sides:
            key, bound = self._room(side)
            too_long = np.flatnonzero(lengths > bound)
            if len(too_long):
                longest = int(lengths.max())
                raise TrainingError(
                    f"{len(too_long)} of {len(lengths)} pairs do not fit a batch: pair "
                    f"{too_long[0] + 1} has {lengths[too_long[0]]} {side} tokens, </s> included, "
                    f"and data.{key} = {bound}: raise it to {-(-longest // 8) * 8}, or prepare the "
                    f"data again with data.max_length = {bound}"
                )

    def _room(self, side: str) -> tuple[str, int]:
        """The recipe's field that limits a sentence on this side, and the limit, </s> included."""
        key = "row_length" if self._packed else f"{side}_tokens"
        return key, getattr(self._recipe, key)


class _Some:
    """The pairs of a `PairSource` with the given indices, numbered anew from 0."""

    def __init__(self, pairs: PairSource, indices: NDArray[np.int32]):
        self._pairs, self._indices = pairs, indices
        self.source_lengths = pairs.source_lengths[indices]
        self.target_lengths = pairs.target_lengths[indices]

    def __len__(self) -> int:
        return len(self._indices)

    def source(self, i: int, /) -> NDArray[Any]:
        return self._pairs.source(self._indices[i])

    def target(self, i: int, /) -> NDArray[Any]:
        return self._pairs.target(self._indices[i])


def _concatenated(sentences: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(sentences) if sentences else np.empty(0, np.int64)
