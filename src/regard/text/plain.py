"""Replace characters of source text that the vocabulary lacks, such as the no-break space.

A character that no piece has is spelled byte by byte, and the model has hardly met it in training.
Much text from web pages and from word processors has such characters where people see a blank, a
quotation mark or nothing. Training text is not changed.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import cached_property
from unicodedata import combining

from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import BYTE_ALPHABET, SPECIAL, Tokenizer

_ASCII = {
    **dict.fromkeys("‘’‚‛ʼ′", "'"),
    **dict.fromkeys("“”„‟″«»", '"'),
    **dict.fromkeys("‐‑‒–—―−", "-"),
    "⁄": "/",  # in fractions such as ½, once NFKC has taken them apart
}
"""A map from punctuation to ASCII, for characters that Unicode's NFKC does not map to ASCII."""
_BLANKS = re.compile("[ \t]+")
FREQUENT = 8
"""A piece counts as frequent if it is in the first 1 / FREQUENT of the learned pieces, because the
most frequent pieces are mostly learned first. If a piece has only blanks, its characters count as
known only if the piece is frequent. So the no-break space that a French text has before each `!`
counts as known. A blank character that only a few lines have, perhaps only lines of the target,
counts as unknown."""


def texts_of_pieces(tokenizer: Tokenizer, ids: Iterable[int]) -> list[str]:
    """The text of each learned piece among `ids`, without incomplete characters.

    Special tokens and the 256 pieces after them, which are single bytes, are left out. A tokenizer
    of word pieces has 256 more pieces that are single bytes. These, and the symbols of trees, are
    not left out.
    """
    learned = [[i] for i in ids if i >= len(SPECIAL) + len(BYTE_ALPHABET)]
    return [piece.replace("\ufffd", "") for piece in tokenizer.decode(learned)]


def plainer(tokenizer: AnyTokenizer, characters: str | None = None) -> Callable[[str], str]:
    """A function that rewrites a source line for the tokenizer's vocabulary.

    `characters` are the non-ASCII characters of the source sentences in training; None means that
    they are not known. ASCII characters stay. Any other character is replaced if no piece has it
    (for blanks, see FREQUENT), or if `characters` is given and the character is neither a letter
    nor in `characters`. A letter and its combining accents become one character (NFC), a blank
    becomes a space, and other punctuation and compatibility characters become plain ones (NFKC). A
    letter with accents becomes the letter alone. A symbol such as an emoji becomes a space, and an
    invisible character is left out. A character for which there is no replacement stays.

    Then spaces at both ends are removed, and spaces and tabs in a row become one space. Foreign
    tokenizers have rules of their own, so for them the function returns the line as it is.
    """
    return _Plainer(tokenizer, characters) if isinstance(tokenizer, Tokenizer) else str


class _Plainer(dict[int, str]):
    """A table from code points to replacements, for `str.translate`; it fills while it is used."""

    def __init__(self, tokenizer: Tokenizer, characters: str | None):
        super().__init__()
        self._tokenizer, self._characters = tokenizer, characters

    def __call__(self, line: str) -> str:
        if not (line.isascii() or self._known.issuperset(line)):
            composed = unicodedata.normalize("NFC", line)
            line = min((line, composed), key=self._unknown).translate(self)
        return _BLANKS.sub(" ", line).strip(" ")

    def __missing__(self, point: int) -> str:
        char = chr(point)
        self[point] = replaced = char if char in self._known else self._replacement(char)
        return replaced

    @cached_property
    def _known(self) -> frozenset[str]:
        """ASCII, and characters that both learned pieces and source sentences of training have.

        Letters count as known even if only targets have them: names are often copied. A learned
        piece that has only blanks is left out if it is not frequent (see FREQUENT).
        """
        pieces = texts_of_pieces(self._tokenizer, range(self._tokenizer.size))
        frequent = len(pieces) / FREQUENT
        counted = (piece for i, piece in enumerate(pieces) if piece.strip() or i < frequent)
        known = frozenset(map(chr, range(128))).union(*counted)
        if self._characters is None:
            return known
        return frozenset(c for c in known if c.isascii() or c.isalpha() or c in self._characters)

    def _unknown(self, line: str) -> int:
        return sum(char not in self._known for char in line)

    def _replacement(self, char: str) -> str:
        kind = unicodedata.category(char)
        if kind in ("Zs", "Zl", "Zp"):  # blanks
            return " "
        if kind in ("Cf", "Mn", "Me"):  # a soft hyphen or a combining accent, for example
            return ""
        plain = _simplified(char)
        if kind == "No" and "/" in plain:
            plain = " " + plain  # so that 1½ becomes 1 1/2
        bare = "".join(c for c in unicodedata.normalize("NFKD", char) if not combining(c))
        for form in (plain, bare):
            if form and self._known.issuperset(form):
                return form
        return " " if kind in ("So", "Sk") else char


def _simplified(char: str) -> str:
    """The character in ASCII by `_ASCII`, or else by NFKC and then `_ASCII`.

    By NFKC alone, a double prime, ″, would become two single ones.
    """
    parts = unicodedata.normalize("NFKC", char)
    return _ASCII.get(char) or "".join(_ASCII.get(part, part) for part in parts)
