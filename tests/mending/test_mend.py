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


def test_the_longest_sentence_that_is_not_split_is_searched_for_again(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output ends where the model has no more positions, though its source may have fewer."""
    asked = with_second_search(monkeypatch, [SOUND])
    longest = " ".join(f"word{i}" for i in range(translator.longest - 1))  # and </s>
    unended = Translation(longest.replace("word", "Wort"), -1.0)
    [found] = mended(translator, [longest], [[unended]])
    assert found == Mended([unended], ("truncation",), retried=True)
    assert asked == [longest]


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


WORDS = "</s> the The a dog Tom Mary and sleeps in"


def count_pieces(lines: list[str], side: str = "source") -> list[list[int]]:
    """A tokenizer for which a word that is not among WORDS has a piece for each character."""
    known = WORDS.split()
    return [[i for word in line.split()
             for i in ([known.index(word)] if word in known else map(ord, word))]
            for line in lines]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("THE DOG SLEEPS", "The dog sleeps"),
        (">>de<< TOM AND A DOG", ">>de<< Tom and a dog"),
        ("Mary Sleeps", "Mary sleeps"),
        ("Mary Sleeps in a Dog", "Mary sleeps in a dog"),
        ('"THE DOG AND A DOG"', '"The dog and a dog"'),
    ],
)
def test_a_line_with_many_capitals_is_searched_for_with_few(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, line: str, asked: str
) -> None:
    found = with_second_search(monkeypatch, [REPEATED, SOUND])
    translator.tokenizer.encode = count_pieces  # type: ignore
    first = [Translation("AGA", -1.0)]
    assert mended(translator, [line], [first], retry=False)[0].translations == first
    [its] = mended(translator, [line], [first])
    text = SOUND.text.upper() if line.removeprefix(">>de<<").isupper() else SOUND.text
    assert its == Mended([Translation(text, SOUND.score)], retried=True)
    assert found == [asked]


def test_where_small_letters_do_not_help_the_first_stays(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_second_search(monkeypatch, [REPEATED])
    translator.tokenizer.encode = count_pieces  # type: ignore
    first = [Translation("AGA BIN", -1.0)]
    assert mended(translator, ["THE DOG SLEEPS"], [first]) == [Mended(first, retried=True)]


@pytest.mark.parametrize(
    "line",
    [
        "SLEEPS",
        "SLEEPS 2024!",
        "The DOG sleeps",
        "Tom and Mary",
        "ㅋ USA와 개",
        "고양이가 앉았다",
        "5 > 3",
    ],
)
def test_a_line_with_few_capitals_stays_as_it_is(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    asked = with_second_search(monkeypatch)
    translator.tokenizer.encode = count_pieces  # type: ignore
    assert mended(translator, [line], [[Translation("x y z w", -1.0)]])[0].retried is False
    assert asked == []


def test_capitals_that_the_vocabulary_has_stay_as_they_are(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = with_second_search(monkeypatch)
    translator.tokenizer.encode = lambda lines, side="source": [  # type: ignore
        [*range(len(line.split()))] for line in lines
    ]
    assert mended(translator, ["THE DOG SLEEPS"], [[SOUND]]) == [Mended([SOUND])]
    assert asked == []
