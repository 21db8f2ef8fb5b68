"""Words that are divided into pieces; neighbouring pieces can be joined (§5.1, `wordpieces`)."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]
"""Places in a text. A place is the index of a byte, counted from 0 through all words.

`Meetings` also uses this type for pieces and weights.
"""


class Meetings:
    """Pairs of neighbouring pieces in a text.

    Each pair has a left and a right piece, the place where the left piece starts, and a weight: how
    often the word with the pair occurs.
    """

    def __init__(
        self, left: Positions, right: Positions, starts: Positions, weights: Positions
    ) -> None:
        self.left, self.right, self.starts, self.weights = left, right, starts, weights

    def by_pair(self) -> Iterable[tuple[int, int, Positions, int]]:
        """Yield (left, right, starts, sum of weights) for each distinct pair.

        Pairs are sorted by `left`, then by `right`; `starts` are the pair's places, ascending.
        """
        if not len(self.starts):
            return
        order = np.lexsort((self.starts, self.right, self.left))
        left, right, starts = self.left[order], self.right[order], self.starts[order]
        new = np.flatnonzero((np.diff(left) != 0) | (np.diff(right) != 0)) + 1
        begins = np.concatenate([[0], new])
        sums = np.add.reduceat(self.weights[order], begins)
        for begin, end, weight in zip(begins, [*new, len(starts)], sums, strict=True):
            yield int(left[begin]), int(right[begin]), starts[begin:end], int(weight)


class DividedText:
    """The words of a text, one after another, as arrays with one element for each byte.

    In each array, the element at the first byte of a piece describes the piece. `words` has words
    with their counts; each byte of a word is written as one character c. `ids[c]` is the piece for
    c at the beginning of a word, and `ids[mark + c]` the piece for c inside a word.
    """

    def __init__(self, words: Sequence[tuple[str, int]], ids: Mapping[str, int], mark: str):
        together = "".join(word for word, _ in words)
        lengths = np.array([len(word) for word, _ in words], np.int64)
        counts = np.array([count for _, count in words], np.int64)
        self._none = size = len(together)
        different, places = np.unique(
            np.frombuffer(together.encode("utf-32-le"), np.uint32), return_inverse=True
        )
        first, other = (
            np.array([ids[form + chr(code)] for code in different], np.int64) for form in ("", mark)
        )
        ends = np.cumsum(lengths)
        begins = ends - lengths
        self.piece = np.append(other[places], -1)
        self.piece[begins] = first[places[begins]]
        self.weight = np.append(np.repeat(counts, lengths), 0)
        self._before = np.arange(-1, size)
        self._after = np.arange(1, size + 2)
        self._before[begins] = size
        self._after[ends - 1] = size
        self._marked = np.zeros(size + 1, bool)

    def first_pairs(self) -> Meetings:
        """All pairs of neighbouring pieces, before any pair is joined."""
        starts = np.flatnonzero(self._after[:-1] != self._none)
        return self._meetings(starts)

    def _meetings(self, starts: Positions) -> Meetings:
        after = self._after[starts]
        return Meetings(self.piece[starts], self.piece[after], starts, self.weight[starts])

    def starts(self, among: Positions, left: int, right: int) -> Positions:
        """The places in `among` at which the pair (left, right) starts.

        If `left` and `right` are equal, pairs may overlap. In a run such as a a a a, only the
        places of the first a, of the third a, and so on, are returned.
        """
        found = among[(self.piece[among] == left) & (self.piece[self._after[among]] == right)]
        if left != right or not len(found):
            return found
        found = np.sort(found)
        follows = np.append(False, self._after[found[:-1]] == found[1:])
        places = np.arange(len(found))
        begins = np.maximum.accumulate(np.where(follows, 0, places))
        return found[(places - begins) % 2 == 0]

    def join(self, starts: Positions, piece: int) -> tuple[Meetings, Meetings, int]:
        """Replace the pairs at `starts` by `piece`.

        Returns the other pairs whose pieces are no longer neighbours, the pairs whose pieces have
        become neighbours, and how often the replaced pair occurred.
        """
        second = self._after[starts]
        before, after = self._before[starts], self._after[second]
        # Where two joined pairs follow each other, the pair between them is counted only once.
        inside = self._is_among(before, second)
        leaving = before[(before != self._none) & ~inside]
        parted = self._meetings(np.concatenate([leaving, second[after != self._none]]))
        self.piece[starts], self.piece[second] = piece, -1
        self._after[starts], self._before[after] = after, starts
        before = self._before[starts]
        inside = self._is_among(after, starts)
        staying = starts[(after != self._none) & ~inside]
        met = self._meetings(np.concatenate([before[before != self._none], staying]))
        return parted, met, int(self.weight[starts].sum())

    def _is_among(self, places: Positions, others: Positions) -> NDArray[np.bool_]:
        self._marked[others] = True
        found = self._marked[places]
        self._marked[others] = False
        return found
