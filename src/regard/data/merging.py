"""The loops of BPE-dropout, compiled by Numba: they cut words into sub-words at random."""

from typing import Any

import numpy as np
from numpy import int64 as i64
from numpy import uint64 as u64

from regard.arithmetic.loops.numbers import loop_for, within

_Integer = Any
_Integers = Any
"""`_Integers` is an array of integers. The signatures of the loops have the exact types."""


@within
def _mixed(key: _Integer) -> _Integer:
    """A 64-bit hash (the last step of splitmix64); each bit of it depends on all bits of `key`."""
    x = u64(u64(key ^ (key >> u64(30))) * u64(0xBF58476D1CE4E5B9))
    x = u64(u64(x ^ (x >> u64(27))) * u64(0x94D049BB133111EB))
    return u64(x ^ (x >> u64(31)))


@within
def _place(left: _Integer, right: _Integer, keys: _Integers) -> tuple[_Integer, _Integer]:
    """The key of a pair of sub-words, and the index of this key in the hash table.

    If the table lacks the key, the index is that of the free slot where the key would be written.
    """
    key = u64(u64(u64(left) << u64(32)) | u64(right)) + u64(1)
    place = i64(_mixed(key) & u64(len(keys) - 1))
    while keys[place] != u64(0) and keys[place] != key:
        place = (place + 1) & (len(keys) - 1)
    return key, place


@within
def _rank(left: _Integer, right: _Integer, keys: _Integers, ranks: _Integers) -> _Integer:
    """The rank of the merge that joins two sub-words; -1 if no merge joins them.

    The merge that was learned first has rank 0. `keys` and `ranks` are the hash table that
    `fill_table` made.
    """
    key, place = _place(left, right, keys)
    return ranks[place] if keys[place] == key else i64(-1)


@loop_for("void(uint32[:, ::1], uint64[::1], int64[::1])")
def fill_table(merges: _Integers, keys: _Integers, ranks: _Integers) -> None:
    """Write the ranks of merges into the hash table `keys` and `ranks`.

    Row i of `merges` has the two sub-words that the merge of rank i joins, and the sub-word that
    they become. The length of `keys`, and of `ranks`, is a power of two, and exceeds the number of
    merges. All `keys` must be 0.
    """
    for rank in range(len(merges)):
        key, place = _place(merges[rank, 0], merges[rank, 1], keys)
        keys[place], ranks[place] = key, rank


@within
def _merge(
    word: _Integers,
    joins: _Integers,
    size: _Integer,
    merges: _Integers,
    keys: _Integers,
    ranks: _Integers,
    threshold: u64,
    state: u64,
) -> tuple[_Integer, u64]:
    """Merge the first `size` sub-words of `word` in place, skipping merges at random.

    Returns how many sub-words remain, and the new state of the random number generator; `state` is
    the old state. `joins` is a buffer; its element k gets the rank of the merge that joins word[k]
    and word[k + 1]. A merge is skipped if a random number of 53 bits is below `threshold`.
    """
    for k in range(size - 1):
        joins[k] = _rank(word[k], word[k + 1], keys, ranks)
    while size > 1:
        best, place = i64(len(merges)), i64(-1)
        for k in range(size - 1):
            if 0 <= joins[k] < best:
                state = u64(state + u64(0x9E3779B97F4A7C15))
                if u64(_mixed(state) >> u64(11)) >= threshold:
                    best, place = joins[k], i64(k)
        if place < 0:
            break
        word[place] = merges[best, 2]
        size -= 1
        for k in range(place + 1, size):
            word[k] = word[k + 1]
            joins[k - 1] = joins[k]
        if place > 0:
            joins[place - 1] = _rank(word[place - 1], word[place], keys, ranks)
        if place + 1 < size:
            joins[place] = _rank(word[place], word[place + 1], keys, ranks)
    return size, state


@loop_for(
    "Tuple((uint32[::1], int64[::1]))(uint32[::1], int64[::1], uint32[::1], int64[::1], int64, "
    "uint32[:, ::1], uint64[::1], int64[::1], float64, uint64, int64)"
)
def merge_again(
    ids: _Integers,
    starts: _Integers,
    spelled: _Integers,
    spelled_starts: _Integers,
    space: int,
    merges: _Integers,
    keys: _Integers,
    ranks: _Integers,
    probability: float,
    seed: int,
    longest: int,
) -> tuple[_Integers, _Integers]:
    """Spell the words of sentences in bytes, and merge the bytes again; return new ids and starts.

    A word is merged in rounds. In each round, every possible merge is skipped with the probability
    `probability`. From the merges that are not skipped, the one that was learned first is made. The
    word is done when a round makes no merge. A sentence that would have more than `longest` ids
    keeps its old ids.

    Sentence i is ids[starts[i] : starts[i + 1]]. A word begins with the byte whose id is `space`;
    spelled[spelled_starts[j] : spelled_starts[j + 1]] are the bytes of id j, as ids. `keys` and
    `ranks` are the hash table that `fill_table` made from `merges`.
    """
    room, total = i64(0), i64(0)
    for s in range(len(starts) - 1):
        size = i64(0)
        for i in range(starts[s], starts[s + 1]):
            size += spelled_starts[ids[i] + 1] - spelled_starts[ids[i]]
        room, total = max(room, size), total + size
    out, out_starts = np.empty(total, np.uint32), np.zeros(len(starts), np.int64)
    word, joins = np.empty(room, np.uint32), np.empty(room, np.int64)
    threshold, state, end = u64(probability * 2.0**53), u64(seed), i64(0)
    for s in range(len(starts) - 1):
        i = starts[s]
        while i < starts[s + 1]:
            size = i64(0)
            while i < starts[s + 1] and (size == 0 or spelled[spelled_starts[ids[i]]] != space):
                for k in range(spelled_starts[ids[i]], spelled_starts[ids[i] + 1]):
                    word[size] = spelled[k]
                    size += 1
                i += 1
            size, state = _merge(word, joins, size, merges, keys, ranks, threshold, state)
            for k in range(size):  # `out[...] = word[:size]` would take longer to compile
                out[end + k] = word[k]
            end += size
        if end - out_starts[s] > longest:
            end = out_starts[s] + starts[s + 1] - starts[s]
            for k in range(starts[s + 1] - starts[s]):
                out[out_starts[s] + k] = ids[starts[s] + k]
        out_starts[s + 1] = end
    return out[:end].copy(), out_starts
