"""Split a text into sentences and what is between them: line breaks, list marks, HTML tags."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sentencex import segment

from regard.serve.markup import StretchKind, stretches

_LIST_MARK = re.compile(r"\s*(?:(?:[-*+•‣·–—>#]{1,6}|\d{1,3}[.)]|[a-z]\))\s+)*")
"""Marks that may precede the first sentence of a line: blanks, bullets, numbers, and > of quoted
text."""
_LONGEST = 5000
"""A line of more characters than this is cut into parts before it is divided into sentences: the
time of the division may grow with the square of the length."""


@dataclass(frozen=True)
class Passage:
    """A text, which consists of kept[0] sentences[0] kept[1] sentences[1] ... kept[-1]."""

    kept: tuple[str, ...]
    """The parts that are not translated: one more than there are sentences."""
    sentences: tuple[str, ...]
    is_html: bool

    def written(self, translation: str) -> str:
        """Put a translation on one line, and escape it if the text is HTML."""
        line = " ".join(translation.splitlines())
        return html.escape(line, quote=False) if self.is_html else line

    def joined(self, translations: Sequence[str]) -> str:
        """The text with each sentence replaced by its translation."""
        parts = [self.kept[0]]
        for translation, kept in zip(translations, self.kept[1:], strict=True):
            parts += self.written(translation), kept
        return "".join(parts)


def read_text(text: str, language: str) -> Passage:
    """Split plain text; no sentence contains a line break or begins with a list mark."""
    return _passage(_of_text(text, language), is_html=False)


def read_html(text: str, language: str) -> Passage:
    """Split the text between the tags of HTML; the text of elements such as <script> is kept."""
    return _passage(_of_html(text, language), is_html=True)


def _passage(parts: Iterator[tuple[str, bool]], *, is_html: bool) -> Passage:
    kept, sentences = [""], []
    for part, is_sentence in parts:
        if is_sentence:
            sentences.append(part)
            kept.append("")
        else:
            kept[-1] += part
    return Passage(tuple(kept), tuple(sentences), is_html)


def _of_text(text: str, language: str) -> Iterator[tuple[str, bool]]:
    for line in text.splitlines(keepends=True):
        mark = _LIST_MARK.match(line)
        start = mark.end() if mark else 0
        yield line[:start], False
        yield from _sentences(line[start:], language)


def _of_html(text: str, language: str) -> Iterator[tuple[str, bool]]:
    for stretch, kind in stretches(text):
        readable = html.unescape(stretch)
        if kind is StretchKind.KEPT or not _has_letters(readable):
            yield stretch, False
            continue
        for part, is_sentence in _sentences(readable, language):
            if is_sentence:  # line breaks of HTML become spaces
                yield " ".join(part.split()), True
            else:
                yield html.escape(part, quote=False), False


def _sentences(line: str, language: str) -> Iterator[tuple[str, bool]]:
    """Split a line into sentences (True), and the spaces and punctuation around them (False)."""
    for piece in _segments(line, language):
        body = piece.strip()
        if not _has_letters(body):
            yield piece, False
            continue
        start = piece.index(body)
        yield piece[:start], False
        yield body, True
        yield piece[start + len(body) :], False


def _segments(line: str, language: str) -> Iterator[str]:
    """Cut a line at the ends of sentences; first cut a very long line into parts."""
    while line:
        cut = len(line) if len(line) <= _LONGEST else line.rfind(" ", 0, _LONGEST) + 1 or _LONGEST
        part, line = line[:cut], line[cut:]
        pieces = segment(language, part)
        yield from pieces if "".join(pieces) == part else [part]


def _has_letters(text: str) -> bool:
    """Whether there is a letter; numbers and punctuation need no translation."""
    return any(c.isalpha() for c in text)
