"""Remarks that warn users if a score may mislead, because of the words or characters of a text."""

from collections.abc import Sequence
from unicodedata import is_normalized

from regard.text.scripts import script_of


def on_words(lines: Sequence[str]) -> str:
    """Why 13a and intl, the usual BLEU tokenizers, do not suit a reference; "" if they suit it."""
    script = script_of(lines)
    if script == "Korean":
        return (
            "is Korean, whose particles stay joined to words in this BLEU: see --tokenizer "
            "(ko-mecab, char)"
        )
    if script != "spaced" or _without_blanks(lines):
        return "has hardly any blanks, so BLEU takes lines for words: see --tokenizer"
    return ""


def on_forms(texts: Sequence[Sequence[str]]) -> tuple[int, str] | None:
    """The index of the text with the largest share of lines not in NFC, and a remark on this text.

    The result is None if the shares of all texts differ by less than 0.1. NFC and NFD are
    normalization forms of Unicode; some programs of macOS write NFD. An umlaut or a Korean syllable
    is one character in NFC, and several characters in NFD. Scores take the two forms of a letter
    for different letters. No text may be empty.
    """
    shares = [sum(not is_normalized("NFC", line) for line in text) / len(text) for text in texts]
    most = max(range(len(texts)), key=shares.__getitem__)
    if shares[most] - min(shares) < 0.1:
        return None
    return most, (
        f"{shares[most]:.0%} of its lines are not in Unicode's form NFC, unlike another file: the "
        "same letters score as different ones; convert it, for instance by uconv -x nfc"
    )


def _without_blanks(lines: Sequence[str]) -> bool:
    """Whether text seems to have no blanks: its "words" have over 10 characters on average."""
    words = "\n".join(lines).split()
    return len("".join(words)) > 10 * len(words)
