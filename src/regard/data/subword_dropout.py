"""BPE-dropout (Provilkov et al., 2020): in each epoch, words are cut into sub-words at random.

Byte-pair encoding spells a word in bytes, and then makes the merges that it has learned, in the
order in which they were learned. With BPE-dropout, each merge is skipped at random, so that a word
is cut in different ways and a model learns from rare sub-words too. BPE-dropout helps where text is
scarce. "Attention Is All You Need" does not use it.

The new sub-words are computed from the ids of a sentence, so data is prepared as usual. The ids do
not tell where encoding always divides a word, for example after a quotation mark. So a merge may
cross such a place: the word `'six` may become `'s` and `ix`. Such words are rare.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.pairs import Pairs
from regard.errors import TrainingError
from regard.recipe import DataRecipe
from regard.text.opening import open_own_tokenizer
from regard.text.tokenizer import Tokenizer

Sentences = tuple[NDArray[Any], NDArray[np.int64]]
"""Two arrays: the ids of sentences laid end to end; and the index where each sentence begins,
followed by the number of all ids."""


class Merges:
    """The merges of a byte-pair encoding, as tables for the loop that skips merges at random."""

    def __init__(self, tokenizer: Tokenizer):
        """Raises TrainingError if the tokenizer has no merges, or if Numba is not installed."""
        fill_table, self._merge_again = _loops()
        self._merges = tokenizer.merges
        if not len(self._merges):
            raise TrainingError(
                "data.subword_dropout skips merges of byte-pair encoding, and this tokenizer has "
                'none: prepare the data with tokenizer.kind = "bpe", or set it to 0'
            )
        spelled = [[i] for i in range(tokenizer.size)]
        for left, right, merged in self._merges.tolist():
            spelled[merged] = spelled[left] + spelled[right]
        self._spelled = np.array([byte for bytes_ in spelled for byte in bytes_], np.uint32)
        self._starts = np.append(0, np.cumsum([len(bytes_) for bytes_ in spelled]))
        self._space = tokenizer.space
        slots = 2 ** int(np.ceil(np.log2(2 * len(self._merges) + 2)))
        self._keys, self._ranks = np.zeros(slots, np.uint64), np.zeros(slots, np.int64)
        fill_table(self._merges, self._keys, self._ranks)

    def drawn(self, sentences: Sentences, skipped: float, seed: int, longest: int) -> Sentences:
        """Cut sentences into sub-words anew; each merge is skipped with the probability `skipped`.

        A sentence that would have more than `longest` ids keeps its old ids. `seed`, a number from
        0 to 2^63 - 1, decides which merges are skipped.
        """
        ids, starts = sentences
        spelled = self._spelled, self._starts, self._space
        table = self._merges, self._keys, self._ranks
        return self._merge_again(
            ids.astype(np.uint32), starts, *spelled, *table, skipped, seed, longest
        )


class RedrawnPairs(Pairs):
    """Training pairs that are cut into sub-words at random, anew in each epoch."""

    merges: Merges

    @classmethod
    def open(cls, directory: str | Path, split: str) -> "RedrawnPairs":
        """Open a split as `Pairs.open` does, with the merges of the data's tokenizer.

        Raises the errors of `Pairs.open`, `Merges` and `open_own_tokenizer`.
        """
        pairs = super().open(directory, split)
        assert isinstance(pairs, cls)
        pairs.merges = Merges(open_own_tokenizer(directory, "data.subword_dropout", "set it to 0"))
        return pairs

    def drawn(
        self,
        indices: NDArray[Any],
        rules: DataRecipe,
        rooms: tuple[int, int],
        random: np.random.Generator,
    ) -> Pairs:
        """The pairs with these indices, numbered anew from 0, with sub-words drawn by `random`.

        `rooms` has two numbers: the most ids with which a source fits into a batch, and the most
        ids with which a target fits. A source or target that would not fit, or would have more ids
        than data.max_length, keeps its old ids. All these numbers count </s>.
        """
        source, target = (
            self.merges.drawn(
                _as_sentences([get(i) for i in indices.tolist()]),
                rules.subword_dropout,
                int(random.integers(2**63)),
                min(rules.max_length, room),
            )
            for get, room in zip((self.source, self.target), rooms, strict=True)
        )
        return Pairs(source, target, self.fingerprint)


def _loops() -> tuple[Callable[..., None], Callable[..., Sentences]]:
    """The loops `fill_table` and `merge_again`; importing them loads Numba, in about a second.

    Raises TrainingError if Numba is not installed.
    """
    try:
        from regard.data.merging import fill_table, merge_again
    except ModuleNotFoundError:
        raise TrainingError(
            "data.subword_dropout needs Numba, which is not installed here: type 'pip install "
            "numba', or set it to 0"
        ) from None
    return fill_table, merge_again


def _as_sentences(sentences: list[NDArray[Any]]) -> Sentences:
    return np.concatenate(sentences), np.append(0, np.cumsum([len(ids) for ids in sentences]))
