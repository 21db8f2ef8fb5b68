"""A protocol for the sentence pairs that batches are made of, and pairs of arbitrary ids."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from regard.text.tokenizer import EOS


@runtime_checkable
class PairSource(Protocol):
    """Sentence pairs by index, from 0; each sentence ends in </s>, so no sentence is empty."""

    @property
    def source_lengths(self) -> NDArray[Any]:
        """Number of tokens in each source sentence, </s> included."""

    @property
    def target_lengths(self) -> NDArray[Any]:
        """Number of tokens in each target sentence, </s> included."""

    def __len__(self) -> int: ...

    def source(self, i: int, /) -> NDArray[Any]:
        """Ids of source sentence i, </s> included."""

    def target(self, i: int, /) -> NDArray[Any]:
        """Ids of target sentence i, </s> included."""


class ArbitraryPairs:
    """Pairs of given lengths; ids are drawn anew at each call. No id is </s>, not even the last."""

    def __init__(self, lengths: NDArray[np.int32], sizes: tuple[int, int]):
        """`lengths` is [2, pairs]; `sizes` are the sizes of the source and target vocabularies."""
        self.source_lengths, self.target_lengths = lengths
        self._random, self._sizes = np.random.default_rng(0), sizes

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, i: int, /) -> NDArray[Any]:
        """Arbitrary ids for source sentence i."""
        return self._random.integers(EOS + 1, self._sizes[0], self.source_lengths[i])

    def target(self, i: int, /) -> NDArray[Any]:
        """Arbitrary ids for target sentence i."""
        return self._random.integers(EOS + 1, self._sizes[1], self.target_lengths[i])
