"""Words are cut as encoding cuts them, and counted in bounded memory."""

import pytest

from regard.text import words
from regard.text.words import count_words


def test_words_are_counted_as_they_are_encoded() -> None:
    lines = ["the cat's  mat", "the cat, 12 cats", "", "x" * 250]
    assert count_words(lines, 100) == {
        "Ġthe": 2,
        "Ġcat": 2,
        "'s": 1,
        "Ġ": 1,  # before an empty word; an empty line has no words
        "Ġmat": 1,
        ",": 1,
        "Ġ12": 1,
        "Ġcats": 1,
        "Ġ" + "x" * 99: 1,
        "x" * 100: 1,
        "x" * 51: 1,
    }


def test_counting_many_different_words_forgets_the_rarest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MOST_WORDS", 10)
    lines = ["often again", *(f"{i} often again" for i in range(40))]
    counts = count_words(lines, 100)
    assert (counts["Ġoften"], counts["Ġagain"]) == (41, 41)
    assert len(counts) <= 11


def test_lines_without_blanks_are_not_all_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a word that occurs once; the first of them stay."""
    lines = [f"{i}今天天气很好" for i in range(25)]
    monkeypatch.setattr(words, "MOST_WORDS", len(lines) - 1)
    counts = count_words(lines, 100)
    assert sum(counts.values()) > len(lines) // 3
    assert counts["Ġ0"] == 1
