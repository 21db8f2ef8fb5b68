"""Translations that look wrong are searched for again, and those that still do are named."""

from typing import Any

import pytest

from regard.mending import mend
from regard.mending.mend import Mended, mended
from regard.translation import Translation, Translator
from serve.conftest import Shouting

SOUND, ECHO = Translation("der Hund schläft", -1.0), Translation("the dog sleeps here", -2.0)
REPEATED = Translation("der der der der", -3.0)
SENTENCES = ["the dog sleeps here", "the dog sleeps here", "a dog"]


@pytest.fixture
def translator() -> Translator:
    """A fake one whose pieces are words."""
    return Shouting()


def with_second_search(monkeypatch: pytest.MonkeyPatch, *found: list[Translation]) -> list[Any]:
    """Have the second search find this for the sentences; returns the sentences it is given."""
    asked: list[Any] = []

    def search_again(_: Translator, sentences: list[str]) -> list[list[Translation]]:
        asked.extend(sentences)
        return list(found)

    monkeypatch.setattr(mend, "search_again", search_again)
    return asked


def test_what_looks_right_stays(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = with_second_search(monkeypatch)
    assert mended(translator, SENTENCES, [[SOUND]] * 3) == [Mended([SOUND])] * 3
    assert asked == []


def test_the_first_sound_ones_replace_it(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = with_second_search(monkeypatch, [REPEATED, SOUND, ECHO], [SOUND, SOUND])
    first, second, third = mended(translator, SENTENCES, [[REPEATED, ECHO], [ECHO], [SOUND]])
    assert first == Mended([SOUND], retried=True)
    assert second == Mended([SOUND], retried=True)
    assert third == Mended([SOUND])
    assert asked == SENTENCES[:2]


def test_where_none_is_sound_the_first_stays_with_its_flaws(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_second_search(monkeypatch, [ECHO, REPEATED])
    [found] = mended(translator, SENTENCES[:1], [[REPEATED, ECHO]])
    assert found == Mended([REPEATED, ECHO], ("repetition",), retried=True)


def test_a_sentence_that_was_split_is_only_named(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = with_second_search(monkeypatch)
    long = "the dog sleeps " * translator.longest
    [found] = mended(translator, [long], [[REPEATED]])
    assert found.flaws
    assert not found.retried
    assert asked == []


def test_parts_together_may_be_longer_than_one_search_allows(translator: Translator) -> None:
    long = " ".join(f"word{i}" for i in range(translator.longest))
    whole = [Translation(long.replace("word", "Wort"), -1.0)]
    assert mended(translator, [long], [whole]) == [Mended(whole)]


def test_a_blank_line_of_many_pieces_stays_blank(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = with_second_search(monkeypatch, [SOUND])
    translator.tokenizer.encode = lambda lines, side="source": [list(line) for line in lines]  # type: ignore
    nothing = [Translation("", 0.0)]
    assert mended(translator, [" " * 12, "\t" * 12], [nothing] * 2) == [Mended(nothing)] * 2
    assert asked == []


def test_the_code_of_a_language_is_no_part_of_an_echo(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_second_search(monkeypatch, [SOUND])
    [found] = mended(translator, [">>de<< the dog sleeps here"], [[ECHO]])
    assert found == Mended([SOUND], retried=True)


def spell_capitals(lines: list[str], side: str = "source") -> list[list[str]]:
    """A tokenizer for which a word in capitals is a piece for each letter."""
    return [[piece for word in line.split() for piece in (word if word.isupper() else [word])]
            for line in lines]  # fmt: skip


def test_capitals_that_the_vocabulary_lacks_are_searched_for_in_small_letters(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = with_second_search(monkeypatch, [REPEATED, SOUND], [REPEATED])
    translator.tokenizer.encode = spell_capitals  # type: ignore
    first = [Translation("INININ AGA", -1.0)]
    found = mended(translator, [">>de<< THE DOG SLEEPS.", "2 DOGS AND A CAT"], [first, first])
    assert asked == [">>de<< The dog sleeps.", "2 dogs and a cat"]
    assert found == [
        Mended([Translation("DER HUND SCHLÄFT", -1.0)], retried=True),
        Mended(first, retried=True),  # nothing better was found
    ]
    assert mended(translator, ["THE DOG SLEEPS"], [first], retry=False) == [Mended(first)]


@pytest.mark.parametrize(
    "line", ["USA", "USA 2024!", "The DOG SLEEPS", "USA와 EU가 만났다", "5 > 3"]
)
def test_what_is_not_in_capitals_stays_as_it_is(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    asked = with_second_search(monkeypatch)
    translator.tokenizer.encode = spell_capitals  # type: ignore
    assert mended(translator, [line], [[Translation("x y z w", -1.0)]])[0].retried is False
    assert asked == []


def test_capitals_that_the_vocabulary_has_stay_as_they_are(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = with_second_search(monkeypatch)
    assert mended(translator, ["THE DOG SLEEPS"], [[SOUND]]) == [Mended([SOUND])]
    assert asked == []
