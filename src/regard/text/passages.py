"""Split a text into sentences and the text between them: line breaks, list marks, HTML tags."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from sentencex import segment

from regard.text.cutting import cut_near_middle
from regard.text.markup import read_references, stretches
from regard.text.protocol import AnyTokenizer
from regard.text.scripts import HANGUL, are_korean, meet_without_blank

_CODE = re.compile(r"\S{1,30}")
"""The form of a code that tells a model the target language: short and without blanks."""
_LIST_MARK = re.compile(r"\s*(?:(?:[-*+•‣·–—>#]{1,6}|\d{1,3}[.)]|[a-z]\))\s+)*")
"""Marks that may precede the first sentence of a line: blanks, bullets, dashes, numbers such as 1.,
letters such as a), # of headings, and > of quoted text."""
_GOES_ON = re.compile(
    f"[\"'”’»」』》〉]({HANGUL.pattern}| +(라고|하고(?! *[싶있])|라며|라면서|라는)"
    "|[ \u3000]*(って|などと|と([、。\u4e00-\u9fff\u30a1-\u30fa]"
    "|い[うっい]|うなず|つぶや|ささや|こた|のこと|だけ)))"
)
"""A closing quotation mark, followed by text that shows that the sentence goes on: a Korean letter
directly after the mark, or a Korean or Japanese particle for quotations."""
_NOT_ASCII = re.compile(r"[^\S\x00-\x7f]")
"""Blanks that ASCII does not have. sentencex 1.0.32 panics where one of them is between a capital
letter and a full stop."""
_MOST_OF_SENTENCE = 1000
"""A sentence of more characters than this is cut, so that no single sentence keeps a server busy
for long. A thousand characters may also be more sub-words than a model can read at once."""
_LONGEST = 5000
"""At most this many characters are divided into sentences at once, because the time that sentencex
needs may grow with the square of the length."""


@dataclass(frozen=True)
class Passage:
    """A text in the order kept[0] sentences[0] kept[1] sentences[1] ... kept[-1]."""

    kept: tuple[str, ...]
    """The parts of the text that are not translated. There is one more part than sentences."""
    sentences: tuple[str, ...]
    """The sentences to translate. In HTML, they are plain text: & instead of &amp;."""
    is_html: bool

    def written(self, translation: str) -> str:
        """Put a translation on one line, and escape it if the text is HTML."""
        line = " ".join(translation.splitlines())
        return html.escape(line, quote=False) if self.is_html else line

    def before(self, number: int, previous: str, translation: str) -> str:
        """The text to write before `translation`, the translation of sentence `number`.

        `previous` is the translation of the sentence before. The text is kept[number], except in
        one case: kept[number] is empty, because the source has no blank between its sentences, as
        in Chinese, Japanese and some Korean text, but the language of the translations writes
        blanks between sentences. In this case, the text is a blank.
        """
        kept = self.kept[number]
        if number == 0 or kept or not previous or not translation:
            return kept
        # The last two characters decide, because the last one may not be Chinese, as in 元气?
        source, target = self.sentences[number - 1 : number + 1], (previous, translation)
        glued = meet_without_blank(source[0], source[1], tail=2)
        other = not are_korean(*target) if are_korean(*source) else glued
        return " " if other and not meet_without_blank(*target, tail=2) else ""

    def joined(self, translations: Sequence[str]) -> str:
        """The text with each sentence replaced by its translation."""
        parts, previous = list[str](), ""
        for number, translation in zip(range(len(self.sentences)), translations, strict=True):
            parts += self.before(number, previous, translation), self.written(translation)
            previous = translation
        return "".join([*parts, self.kept[-1]])


def read_passage(
    text: str, language: str, tokenizer: AnyTokenizer, *, is_html: bool = False
) -> Passage:
    """Split a text into sentences for the model that has this tokenizer.

    `language` is the language code of the text, such as "en". If the text begins with a code that
    tells the model the target language, such as `>>de<<`, this code is put before each sentence,
    and a blank after the code is left out.
    """
    code = tokenizer.prefix(text)
    if not _CODE.fullmatch(code):  # quoted text may begin with >> as well
        code = ""
    rest = text.removeprefix(code).removeprefix(" ") if code else text
    passage = (read_html if is_html else read_text)(rest, language)
    return replace(passage, sentences=tuple(code + one for one in passage.sentences))


def readable(markup: str) -> str:
    """The translatable text of HTML, on one line; `markup` itself if no such text has a letter."""
    texts = (read_references(part) for part, is_text in stretches(markup) if is_text)
    return " ".join(" ".join(filter(_has_letters, texts)).split()) or markup


def read_text(text: str, language: str) -> Passage:
    """Split plain text into sentences without line breaks and without the marks of lists."""
    return _passage(_of_text(text, language), is_html=False)


def read_html(text: str, language: str) -> Passage:
    """Split the text of HTML into sentences, without tags and elements such as <script>."""
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
    for stretch, is_text in stretches(text):
        plain = read_references(stretch)
        if not is_text or not _has_letters(plain):
            yield stretch, False
            continue
        for part, is_sentence in _sentences(plain, language):
            if is_sentence:  # line breaks of HTML become spaces
                yield " ".join(part.split()), True
            else:
                yield html.escape(part, quote=False), False


def _sentences(line: str, language: str) -> Iterator[tuple[str, bool]]:
    """Yield each part of a line, with True if the part is a sentence, otherwise with False.

    Spaces, and parts without letters, are not sentences.
    """
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
    """Cut a line at the ends of sentences, and cut sentences that are too long.

    A very long line is read in parts. The last sentence of a part may go on in the next part, so
    this sentence is read again with the next part, unless it is more than half of the part.
    """
    while line:
        cut = len(line)
        if cut > _LONGEST:
            cut = line.rfind(" ", _LONGEST // 2, _LONGEST) + 1 or _LONGEST
        part, line = line[:cut], line[cut:]
        pieces = _with_quotations(_divided(part, language))
        if line and len(pieces[-1]) <= len(part) // 2:
            line = pieces.pop() + line
        for piece in pieces:
            yield from _cut(piece)


def _divided(part: str, language: str) -> list[str]:
    """Use sentencex to cut `part` at the ends of sentences; joined, the pieces are `part` again."""
    read = _NOT_ASCII.sub(" ", part)
    pieces = segment(language, read)
    if "".join(pieces) != read:
        return [part]
    ends = [0, *accumulate(map(len, pieces))]
    return [part[start:end] for start, end in pairwise(ends)]


def _cut(sentence: str) -> Iterator[str]:
    """The sentence, or parts of it if it is too long (`_MOST_OF_SENTENCE`)."""
    if len(sentence) <= _MOST_OF_SENTENCE:
        yield sentence
    else:
        first, second = cut_near_middle(sentence)
        cut = second if second < len(sentence) else first  # neither part is empty
        yield from _cut(sentence[:cut])
        yield from _cut(sentence[cut:])


def _with_quotations(pieces: Sequence[str]) -> list[str]:
    """Join Korean or Japanese sentences that were cut after a quotation: “왜?” and 라고 물었다."""
    whole: list[str] = []
    for piece in pieces:
        before = whole[-1].rstrip(" \u3000") if whole else ""
        between = whole[-1][len(before) :] if whole else ""
        if before and (piece[0] in "」』" or _GOES_ON.match(before[-1] + between + piece[:6])):
            whole[-1] += piece
        else:
            whole.append(piece)
    return whole


def _has_letters(text: str) -> bool:
    """Whether there is a letter; numbers and punctuation need no translation."""
    return any(c.isalpha() for c in text)
