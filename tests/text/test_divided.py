"""Neighbours are joined in all words at once, and who parts and who meets is told once."""

import numpy as np

from regard.text.divided import DividedText, Meetings

IDS = {"a": 0, "b": 1, "+a": 2, "+b": 3}
ALL = np.arange(99)


def told(meetings: Meetings) -> dict[tuple[int, int], tuple[list[int], int]]:
    return {(a, b): (places.tolist(), n) for a, b, places, n in meetings.by_pair()}


def test_neighbours_are_within_a_word() -> None:
    text = DividedText([("ab", 3), ("b", 5), ("bab", 2)], IDS, "+")
    assert text.piece[:-1].tolist() == [0, 3, 1, 1, 2, 3]
    assert told(text.first_pairs()) == {(0, 3): ([0], 3), (1, 2): ([3], 2), (2, 3): ([4], 2)}


def test_of_pairs_that_overlap_every_other_one_is_joined() -> None:
    text = DividedText([("baaaaa", 1), ("baaaa", 1)], IDS, "+")
    assert text.starts(ALL[:11], 2, 2).tolist() == [1, 3, 7, 9]
    assert text.starts(ALL[:11], 2, 3).tolist() == []


def test_joined_neighbours_part_once_and_meet_once() -> None:
    text = DividedText([("babab", 7)], IDS, "+")  # b, then twice +a +b
    parted, met, weight = text.join(text.starts(ALL[:5], 2, 3), 4)
    assert weight == 14
    assert told(parted) == {(1, 2): ([0], 7), (3, 2): ([2], 7)}
    assert told(met) == {(1, 4): ([0], 7), (4, 4): ([1], 7)}
    assert text.piece[:-1].tolist() == [1, 4, -1, 4, -1]
    assert text.starts(ALL[:5], 1, 4).tolist() == [0]
