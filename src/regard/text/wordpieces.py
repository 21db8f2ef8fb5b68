"""§5.1 Word pieces, learned by likelihood as Schuster and Nakajima (2012) describe.

Wu et al. (2016), whom the paper cites for its English-French vocabulary, refer to that description.
A text is a sequence of pieces; at first, each piece is one byte. The model of the text is the
simplest one: the probability of a piece is its share of all pieces. With c(p) occurrences of a
piece p, and N pieces in all, the log-likelihood of the text is

    L = sum over p of c(p) log c(p)  -  N log N

Until the vocabulary is full, two neighbours within a word are joined into a new piece: always the
pair that raises L most. Byte-pair encoding instead joins the most frequent pair, even if its two
pieces are neighbours no more often than by chance.

A pair (a, b) that occurs n times raises L by about n log(n N / (c(a) c(b))). Some descriptions
leave out the first n and the logarithm, and rank by n / (c(a) c(b)). That is a ranking by the gain
of *one* occurrence. It joins rare pairs first, so that a smallest allowed n must be chosen by hand.
This module computes the exact gain for the whole text. So rare pairs do not come first, and only
pairs that occur once are left out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.text.divided import DividedText, Meetings, Positions

MOST_BYTES = 2**24
"""Pieces are learned from the most frequent words, which have at most this many bytes together."""
LEAST = 2
"""A pair that occurs less often than this does not become a piece."""


def learn_pieces(words: Mapping[str, int], known: Sequence[str], size: int, mark: str) -> list[str]:
    """Learn pieces from words and their counts; returns `known`, followed by the new pieces.

    The new pieces are in the order in which they were learned. `known` has each character of the
    words in two forms: alone, and after `mark`. A piece that begins with `mark` continues a word.
    At most `size` pieces are returned, `known` included. There are fewer if no pair is left that
    occurs at least twice and raises the likelihood.
    """
    learner = Learner(words, known, mark)
    while len(learner.names) < size and learner.join_best():
        pass
    return learner.names


class Counts(NamedTuple):
    """The counts from which the gains of some pairs are computed."""

    pair: NDArray[np.int64]
    """How often each pair can be joined in the text."""
    left: NDArray[np.int64]
    """How often the left piece of each pair occurs in the text."""
    right: NDArray[np.int64]
    joined: NDArray[np.int64]
    """For each pair, how often the text already has the piece that the pair would become."""
    same: NDArray[np.bool_]
    """For each pair, whether its left and right piece are the same piece."""
    total: np.int64
    """The number of pieces in the text."""


def likelihood_gain(of: Counts) -> NDArray[np.float64]:
    """For each pair, how much the log-likelihood L rises if the pair is joined everywhere."""
    n = of.pair
    left = _xlogx(of.left - np.where(of.same, 2 * n, n)) - _xlogx(of.left)
    right = np.where(of.same, 0.0, _xlogx(of.right - n) - _xlogx(of.right))
    joined = _xlogx(of.joined + n) - _xlogx(of.joined)
    return (left + right) + joined + (_xlogx(of.total) - _xlogx(of.total - n))


class Learner:
    """A text that is divided into pieces, and the gain of joining each pair of neighbours."""

    def __init__(
        self,
        words: Mapping[str, int],
        known: Sequence[str],
        mark: str,
        gain: Callable[["Counts"], NDArray[np.float64]] | None = None,
    ):
        """`gain` computes the values by which pairs are compared; by default `likelihood_gain`."""
        self.names, self._mark = list(known), mark
        self._ids = {name: i for i, name in enumerate(known)}
        self._text = DividedText(_most_frequent(words), self._ids, mark)
        self._pairs = _Pairs(len(known), self._text, gain or likelihood_gain)
        self._meet(self._text.first_pairs())
        self._pairs.score(np.arange(self._pairs.used))

    def join_best(self) -> tuple[str, str] | None:
        """Join the pair that raises the likelihood most, at all its places; return its two pieces.

        Returns None if no pair that occurs at least LEAST times raises the likelihood.
        """
        best = self._pairs.best()
        if best is None:
            return None
        left, right = int(self._pairs.left[best]), int(self._pairs.right[best])
        name = self._joined(left, right)
        piece = self._ids.setdefault(name, len(self.names))
        if piece == len(self.names):
            self.names.append(name)
            self._pairs.add_piece()
        starts = self._text.starts(self._pairs.where[best], left, right)
        parted, met, weight = self._text.join(starts, piece)
        self._pairs.forget(best)
        self._part(parted)
        self._meet(met)
        self._pairs.count_joined(left, right, piece, weight)
        self._pairs.score_around((left, right, piece), self._ways_to(name))
        return self.names[left], self.names[right]

    def likelihood(self) -> float:
        """L, the log-likelihood of the text in its present pieces."""
        counts = self._pairs.counts[: len(self.names)]
        return float(_xlogx(counts).sum() - _xlogx(counts.sum(keepdims=True))[0])

    def _joined(self, left: int, right: int) -> str:
        return self.names[left] + self.names[right][len(self._mark) :]

    def _ways_to(self, name: str) -> list[int]:
        """The numbers of the pairs that would become the piece `name` if they were joined."""
        begin = len(self._mark) * name.startswith(self._mark)
        found = []
        for i in range(begin + 1, len(name)):
            left, right = self._ids.get(name[:i]), self._ids.get(self._mark + name[i:])
            if left is not None and right is not None:
                found.append(self._pairs.find(left, right))
        return [pair for pair in found if pair is not None]

    def _part(self, parted: Meetings) -> None:
        """Lower the counts of the pairs in `parted`, whose pieces are no longer neighbours."""
        for left, right, _, weight in parted.by_pair():
            pair = self._pairs.find(left, right)
            if pair is not None:  # None means the pair that was joined, which is forgotten
                self._pairs.change(pair, -weight)

    def _meet(self, met: Meetings) -> None:
        """Raise the counts of the pairs in `met`, whose pieces have become neighbours."""
        for left, right, starts, weight in met.by_pair():
            pair = self._pairs.find(left, right)
            if pair is None:
                pair = self._pairs.add(left, right, self._ids.get(self._joined(left, right), -1))
            self._pairs.change(pair, weight, starts)


def _most_frequent(words: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most frequent words and their counts, with at most MOST_BYTES bytes together.

    If only some of several equally frequent words fit, those that come first in `words` are taken.
    The result is sorted by descending count; words with equal counts are sorted alphabetically.
    """
    ordered = sorted(words.items(), key=lambda item: -item[1])
    ends = np.cumsum([len(word) for word, _ in ordered])
    taken = ordered[: int(np.searchsorted(ends, MOST_BYTES, "right"))]
    return sorted(taken, key=lambda item: (-item[1], item[0]))


class _Pairs:
    """All pairs of neighbouring pieces; each pair has a number.

    The class stores how often and where each pair occurs, and the gain of joining the pair.
    """

    def __init__(
        self, pieces: int, text: DividedText, gain: Callable[[Counts], NDArray[np.float64]]
    ) -> None:
        self._text, self._gain_of, self.used = text, gain, 0
        self.counts = np.bincount(text.piece[:-1], text.weight[:-1], pieces).astype(np.int64)
        self._total = int(self.counts.sum())
        self._numbers: dict[tuple[int, int], int] = {}
        self._free: list[int] = []
        self.left, self.right, self._occur, self._into = (np.zeros(0, np.int64) for _ in range(4))
        # A stored gain may be too large, because gains fall a little when the text has fewer
        # pieces. So `best` computes the gain of a pair again before it returns the pair.
        self._gain = np.zeros(0)
        self.where: list[Positions] = []
        self._of: list[list[int]] = [[] for _ in range(pieces)]

    def add_piece(self) -> None:
        """Make room for one more piece."""
        self._of.append([])
        if len(self._of) > len(self.counts):
            self.counts = np.append(self.counts, np.zeros_like(self.counts))

    def find(self, left: int, right: int) -> int | None:
        """The number of a pair; None if the pair does not occur."""
        return self._numbers.get((left, right))

    def add(self, left: int, right: int, into: int) -> int:
        """Give a new pair a number, and return the number.

        `into` is the piece that the pair would become, or -1 if that piece would be new.
        """
        pair = self._free.pop() if self._free else self.used
        if pair == self.used:
            self.used += 1
            self.where.append(np.zeros(0, np.int64))
            if pair == len(self.left):
                self._grow()
        self.left[pair], self.right[pair], self._into[pair] = left, right, into
        self._numbers[left, right] = pair
        for piece in {left, right}:
            self._of[piece].append(pair)
        return pair

    def _grow(self) -> None:
        more = max(1024, len(self.left))
        for name in ("left", "right", "_occur", "_into", "_gain"):
            array = getattr(self, name)
            setattr(self, name, np.append(array, np.zeros(more, array.dtype)))

    def forget(self, pair: int) -> None:
        """Forget a pair that no longer occurs; its number may be given to another pair."""
        del self._numbers[int(self.left[pair]), int(self.right[pair])]
        self._occur[pair], self._gain[pair] = 0, -np.inf
        self.where[pair] = self.where[pair][:0]
        self._free.append(pair)

    def change(self, pair: int, by: int, starts: Positions | None = None) -> None:
        """Add `by` to a pair's count, and `starts` to the places where the pair starts.

        If the count becomes 0, the pair is forgotten.
        """
        if starts is not None:
            self.where[pair] = np.concatenate([self.where[pair], starts])
        left, right = int(self.left[pair]), int(self.right[pair])
        if left == right:
            # In "aaa", the pairs "aa" at places 0 and 1 overlap: only one of them can be joined.
            # So the pair is counted again at all its places.
            here = self._text.starts(self.where[pair], left, right)
            self._occur[pair] = self._text.weight[here].sum()
        else:
            self._occur[pair] += by
        if not self._occur[pair]:
            self.forget(pair)

    def count_joined(self, left: int, right: int, piece: int, weight: int) -> None:
        """Update the counts of pieces after `weight` pairs (left, right) have become `piece`."""
        self.counts[left] -= weight
        self.counts[right] -= weight
        self.counts[piece] += weight
        self._total -= weight

    def score(self, pairs: NDArray[np.int64]) -> None:
        """Compute and store the pairs' gains; -inf for pairs that occur fewer than LEAST times."""
        n, left, right = self._occur[pairs], self.left[pairs], self.right[pairs]
        into = self._into[pairs]
        joined = np.where(into < 0, 0, self.counts[into])
        counts = self.counts[left], self.counts[right], joined
        of = Counts(n, *counts, same=left == right, total=np.int64(self._total))
        self._gain[pairs] = np.where(n >= LEAST, self._gain_of(of), -np.inf)

    def score_around(self, pieces: Sequence[int], ways: list[int]) -> None:
        """Compute again the gains of the pairs that have one of `pieces`, and of the pairs `ways`.

        The counts of `pieces` have changed. `ways` holds the numbers of the pairs that would become
        `pieces[-1]` if they were joined; their gains depend on the count of `pieces[-1]`.
        """
        into = pieces[-1]
        self._into[ways] = into
        for piece in {*pieces}:
            pairs = np.array(self._of[piece], np.int64)
            mine = (self.left[pairs] == piece) | (self.right[pairs] == piece)
            pairs = np.unique(pairs[mine & (self._occur[pairs] > 0)])
            self._of[piece] = pairs.tolist()
            self.score(pairs)
        self.score(np.array(ways, np.int64))

    def best(self) -> int | None:
        """The number of the first pair with the largest gain; None if no gain is positive."""
        while self.used:
            pair = int(self._gain[: self.used].argmax())
            before = self._gain[pair]
            if before <= 0:
                return None
            self.score(np.array([pair]))
            if self._gain[pair] == before:
                return pair
        return None


def _xlogx(x: NDArray[np.int64] | np.int64) -> NDArray[np.float64]:
    return np.asarray(x * np.log(np.maximum(x, 1)))
