"""Word pieces: each is the best by a likelihood that is counted anew from the words."""

import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.text import wordpieces
from regard.text.tokenizer import Tokenizer
from regard.text.wordpieces import Learner, learn_pieces

KNOWN = [mark + byte for mark in ("", "+") for byte in "abcd"]
Division = dict[str, list[str]]
"""Words, each with the pieces that it is divided into."""


def log_likelihood(words: dict[str, int], division: Division) -> float:
    """The logarithm of the probability of the text, piece by piece."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for piece in division[word]:
            counts[piece] += count
    total = sum(counts.values())
    return sum(n * math.log(n / total) for n in counts.values())


def joined(pieces: list[str], left: str, right: str) -> list[str]:
    found, i = [], 0
    while i < len(pieces):
        both = pieces[i : i + 2] == [left, right]
        found.append(left + right[1:] if both else pieces[i])
        i += 1 + both
    return found


def joined_in_all(division: Division, left: str, right: str) -> Division:
    return {word: joined(pieces, left, right) for word, pieces in division.items()}


def twice_or_more(words: dict[str, int], division: Division) -> set[tuple[str, str]]:
    """The pairs that can be joined at two places or more."""
    pairs = {pair for pieces in division.values() for pair in pairwise(pieces)}
    return {
        pair
        for pair in pairs
        if sum(
            count * (len(division[word]) - len(joined(division[word], *pair)))
            for word, count in words.items()
        )
        >= 2
    }


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.text("abcd", min_size=1, max_size=9), st.integers(1, 20), max_size=7),
    st.integers(0, 25),
)
@example({"aaaaa": 1, "aaa": 3, "baaaab": 2}, 9)  # pairs that overlap
@example({"abab": 5, "ababab": 2, "cabab": 1}, 9)  # joined neighbours
@example({"abc": 9, "dabc": 2, "bcd": 4, "abd": 3, "dbc": 7}, 9)  # one piece, made in two ways
def test_each_pair_is_the_best_of_all_counted_anew(words: dict[str, int], pieces: int) -> None:
    division = {word: [word[0], *("+" + byte for byte in word[1:])] for word in words}
    learner = Learner(words, KNOWN, "+")
    now = log_likelihood(words, division)
    for _ in range(pieces):
        assert learner.likelihood() == pytest.approx(now, abs=1e-8)
        choices = [
            log_likelihood(words, joined_in_all(division, *pair))
            for pair in twice_or_more(words, division)
        ]
        pair = learner.join_best()
        if pair is None:
            assert all(choice <= now + 1e-8 for choice in choices)
            return
        division = joined_in_all(division, *pair)
        now = log_likelihood(words, division)
        assert now == pytest.approx(max(choices), abs=1e-8)
        assert pair[0] + pair[1][1:] in learner.names


def test_what_belongs_together_is_joined_before_what_is_frequent() -> None:
    """A frequent pair whose halves are frequent anywhere else comes after a rarer loyal one."""
    words = {"ac": 30, "ad": 30, "ab": 40, "cb": 30, "db": 30, "dcdc": 0, "xy": 25}
    words = {word: n for word, n in words.items() if n}
    known = [mark + byte for mark in ("", "+") for byte in "abcdxy"]
    [first] = learn_pieces(words, known, len(known) + 1, "+")[len(known) :]
    assert first == "xy"
    library = Tokenizer.learn(
        [word for word, n in words.items() for _ in range(n)], "bpe", 3 + 256 + 1 + 1
    )
    assert "Ġa" in library._library.get_vocab()


def test_one_occurrence_is_no_reason_to_join() -> None:
    assert learn_pieces({"abcd": 1}, KNOWN, 99, "+") == KNOWN
    assert learn_pieces({"abcd": 2}, KNOWN, 99, "+")[-1] == "abcd"
    assert learn_pieces({}, KNOWN, 99, "+") == KNOWN


def test_no_more_pieces_than_are_asked_for() -> None:
    words = {"abcd": 5, "bcda": 4, "cdab": 3}
    whole = learn_pieces(words, KNOWN, 99, "+")
    for size in range(len(KNOWN), len(whole)):
        assert learn_pieces(words, KNOWN, size, "+") == whole[:size]


def test_the_most_frequent_words_are_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordpieces, "MOST_BYTES", 6)
    learnt = learn_pieces({"abc": 3, "bcd": 5, "dda": 2}, KNOWN, 99, "+")
    assert "bcd" in learnt
    assert "abc" in learnt
    assert "dda" not in learnt
    first, last = {"dcd": 2, "abc": 2, "bdb": 2}, {"bdb": 2, "abc": 2, "dcd": 2}
    assert set(wordpieces._most_frequent(first)) == {("dcd", 2), ("abc", 2)}
    assert wordpieces._most_frequent(last) == [("abc", 2), ("bdb", 2)]
