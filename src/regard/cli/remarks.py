"""Remarks on scored texts, for people who might otherwise take a wrong score for a right one."""

from collections.abc import Sequence
from unicodedata import is_normalized

from regard.text.scripts import HANGUL, suited_tokenizer

_SEEN = 2000
"""The language of a text is found from at most this many of its lines."""


def on_words(lines: Sequence[str]) -> str:
    """Why 13a, the usual tokenizer of BLEU, does not suit a reference; "" if it does."""
    some = lines[:_SEEN]
    if suited_tokenizer(some) == "char" and any(map(HANGUL.search, some)):
        return (
            "is Korean, whose particles stay joined to words in this BLEU: see --tokenizer "
            "(ko-mecab, char)"
        )
    if _without_blanks(lines):
        return "has hardly any blanks, so BLEU takes lines for words: see --tokenizer"
    return ""


def on_forms(texts: Sequence[Sequence[str]]) -> tuple[int, str] | None:
    """The number of a text whose letters are composed otherwise than in another text, and why.

    A letter such as an umlaut or a syllable of Hangul is one character of Unicode (NFC) or several
    (NFD, as macOS writes). Scores take the two for different letters.
    """
    shares = [sum(not is_normalized("NFC", line) for line in text) / len(text) for text in texts]
    most = max(range(len(texts)), key=shares.__getitem__)
    if shares[most] - min(shares) < 0.1:
        return None
    return most, (
        f"{shares[most]:.0%} of its lines have letters in several characters (Unicode NFD), which "
        "scores as other letters: convert the file (uconv -x nfc)"
    )


def _without_blanks(lines: Sequence[str]) -> bool:
    """Whether words seem to be written without blanks: the average "word" has over 10 letters."""
    words = "\n".join(lines).split()
    return len("".join(words)) > 10 * len(words)
