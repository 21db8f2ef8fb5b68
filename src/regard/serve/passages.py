"""A text as sentences to translate and all that stays as it was: line breaks, list marks, tags."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sentencex import segment

from regard.serve.markup import Run, runs

MARK = re.compile(r"\s*(?:(?:[-*+•‣·–—>#]{1,6}|\d{1,3}[.)]|[a-z]\))\s+)*")
"""What a line may begin with that is no sentence: indentation, bullets, numbers, quotes."""
LONGEST = 5000
"""Characters that are looked at together: the time to find sentences may grow with their square."""


@dataclass(frozen=True)
class Passage:
    """kept[0] sentences[0] kept[1] sentences[1] ... kept[-1]."""

    kept: tuple[str, ...]
    sentences: tuple[str, ...]
    is_html: bool

    def written(self, translation: str) -> str:
        """A translation of a sentence as it stands in this text."""
        line = " ".join(translation.splitlines())
        return html.escape(line, quote=False) if self.is_html else line

    def joined(self, translations: Sequence[str]) -> str:
        """The text with its sentences translated."""
        parts = [self.kept[0]]
        for translation, kept in zip(translations, self.kept[1:], strict=True):
            parts += self.written(translation), kept
        return "".join(parts)


def read_text(text: str, language: str) -> Passage:
    """Sentences of plain text: a line's end ends one, and a list's mark belongs to none."""
    return _passage(_of_text(text, language), is_html=False)


def read_html(text: str, language: str) -> Passage:
    """Sentences between the tags; what the reader of the page does not read stays as it is."""
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
        mark = MARK.match(line)
        start = mark.end() if mark else 0
        yield line[:start], False
        yield from _sentences(line[start:], language)


def _of_html(text: str, language: str) -> Iterator[tuple[str, bool]]:
    for run, kind in runs(text):
        readable = html.unescape(run)
        if kind is Run.KEPT or not _is_read(readable):
            yield run, False
            continue
        for part, is_sentence in _sentences(readable, language):
            if is_sentence:  # in HTML a line's end is a space
                yield " ".join(part.split()), True
            else:
                yield html.escape(part, quote=False), False


def _sentences(line: str, language: str) -> Iterator[tuple[str, bool]]:
    """The sentences of a line, and the spaces and signs around them."""
    for piece in _segments(line, language):
        body = piece.strip()
        if not _is_read(body):
            yield piece, False
            continue
        start = piece.index(body)
        yield piece[:start], False
        yield body, True
        yield piece[start + len(body) :], False


def _segments(line: str, language: str) -> Iterator[str]:
    """A line in pieces that end where a sentence does; of an endless line, a part at a time."""
    while line:
        cut = len(line) if len(line) <= LONGEST else line.rfind(" ", 0, LONGEST) + 1 or LONGEST
        part, line = line[:cut], line[cut:]
        pieces = segment(language, part)
        yield from pieces if "".join(pieces) == part else [part]


def _is_read(text: str) -> bool:
    """Whether there is a letter: numbers and signs are the same in every language."""
    return any(c.isalpha() for c in text)
