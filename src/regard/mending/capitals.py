"""Sentences in capitals, such as headlines: the vocabulary of a small text has few such words."""

from regard.mending.flaws import has_letter
from regard.text.protocol import AnyTokenizer

SHARE = 1.5
"""Capitals do not suit a vocabulary if a sentence has SHARE times as many pieces in them, or more,
as in small letters."""


def in_small_letters(tokenizer: AnyTokenizer, sentence: str) -> str | None:
    """The sentence in small letters, with a capital at its beginning; None if it stays as it is.

    A sentence stays as it is if one of its letters is no capital, if fewer than two words have
    letters, or if its capitals suit the vocabulary. The code of a language before it is kept.
    """
    text = sentence.removeprefix(tokenizer.prefix(sentence)).lstrip()
    letters = filter(str.isalpha, text)
    if not all(map(str.isupper, letters)) or sum(map(has_letter, text.split())) < 2:
        return None
    small = sentence.removesuffix(text) + text.capitalize()
    capitals, others = map(len, tokenizer.encode([sentence, small]))
    return small if capitals >= SHARE * others else None
