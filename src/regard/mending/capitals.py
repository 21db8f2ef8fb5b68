"""Lines with many capitals, such as headlines, and how the training text would write them.

A small training text has few words in capitals, so a line in capitals is cut into many pieces.
"""

from typing import NamedTuple

from regard.text.protocol import AnyTokenizer

_SHARE = 1.25
"""The capitals of a line do not suit a vocabulary if the line has at least _SHARE times as many
pieces as the same line written with fewer capitals."""
_LONG = 4
"""In a title such as `Songs of the Distant Earth`, words of fewer letters than this may begin with
a small letter."""
_EARLIER = 4
"""If a word has as many pieces with a capital as in small letters, the ids of the first pieces of
the two forms are compared, because frequent pieces mostly have small ids. The word gets a capital
if the id of the form with a capital is less than 1 / _EARLIER times the id of the form in small
letters. So `Tom` gets a capital; `The` does not, although many sentences begin with `The`."""


class Recased(NamedTuple):
    """A line with fewer capitals, as the training text would probably have it."""

    text: str
    from_capitals: bool
    """Whether all letters of the original line are capitals."""


def recased(tokenizer: AnyTokenizer, line: str) -> Recased | None:
    """The line with fewer capitals; None if it has few capitals, or if they suit the vocabulary.

    A line has many capitals if it has at least two words and all its letters are capitals, or if it
    is a title. In a title, at least two words have _LONG letters or more, and each of these words
    begins with a capital. Each word of the line is written in small letters, with one capital, or
    as it is. The form with the fewest pieces is taken; if two forms have equally many, `_EARLIER`
    decides. So most names keep their capitals. The new line begins with a capital. The prefix of
    the line, such as `>>de<<`, is kept.
    """
    text = line.removeprefix(tokenizer.prefix(line)).lstrip()
    words = [letters for word in text.split() if (letters := [*filter(str.isalpha, word)])]
    capitals = all("".join(letters).isupper() for letters in words)
    if len(words) < 2 or not (capitals or _is_title(words)):
        return None
    written = " ".join(_usual(tokenizer, word) for word in text.split(" "))
    usual = line.removesuffix(text) + _with_capital(written)
    given, found = map(len, tokenizer.encode([line, usual]))
    return Recased(usual, capitals) if given >= _SHARE * found else None


def _is_title(words: list[list[str]]) -> bool:
    long = [letters for letters in words if len(letters) >= _LONG]
    return len(long) >= 2 and all(letters[0].isupper() for letters in long)


def _usual(tokenizer: AnyTokenizer, word: str) -> str:
    forms = [word.lower(), _with_capital(word.lower()), word]
    encoded = tokenizer.encode(forms)
    ranks = [(len(ids), sum(ids[:1]) * (_EARLIER if i else 1)) for i, ids in enumerate(encoded)]
    return forms[ranks.index(min(ranks))]


def _with_capital(text: str) -> str:
    """The text with a capital as its first letter; all other letters stay as they are."""
    first = next((i for i, char in enumerate(text) if char.isalpha()), 0)
    return text[:first] + text[first : first + 1].upper() + text[first + 1 :]
