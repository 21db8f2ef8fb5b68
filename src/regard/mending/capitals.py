"""Lines with many capitals, such as headlines: a small text has few words that are written so."""

from typing import NamedTuple

from regard.text.protocol import AnyTokenizer

_SHARE = 1.25
"""Capitals do not suit a vocabulary if they make a line _SHARE times as many pieces, or more."""
_LONG = 4
"""In a title such as `The Cat on the Mat`, words of fewer letters may begin with a small letter."""
_EARLIER = 4
"""If a word has as many pieces with a capital as without, the first ids decide, because pieces are
learned in the order of their counts: it has a capital if that id is less than 1 / _EARLIER times
the other. `Tom` then does; `The` does not, although many sentences begin with it."""


class Recased(NamedTuple):
    """A line in the letters that the training text would have."""

    text: str
    from_capitals: bool
    """Whether all letters of the original line are capitals."""


def recased(tokenizer: AnyTokenizer, line: str) -> Recased | None:
    """The line with fewer capitals; None if it does not have many, or if they suit the vocabulary.

    A line has many capitals if there are two words, and if all its letters are capitals, or if at
    least two words have _LONG letters or more and each of these begins with a capital. Each word is
    then written in small letters, with one capital, or as it is, whichever has the fewest pieces;
    so most names keep their capitals. The line begins with a capital. The code of a language before
    it is kept.
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
