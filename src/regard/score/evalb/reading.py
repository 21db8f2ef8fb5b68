"""Read a line of brackets as EVALB does: as bytes, divided at ASCII's six blanks.

EVALB's messages about the line are kept. A line that does not fit EVALB's arrays, or makes EVALB
read outside of them, is read here by the same rules, and a remark is added.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass, field

from regard.score.evalb.parameters import EvalbParameters

UNCLOSED = -1
"""The end of a bracket that is never closed."""
QUOTE_MARKS = {b"'", b'"', b"/"}
"""The words that count as quotation marks if their tag is in `EvalbParameters.quotes`."""

# `(label blanks string)` is a word; any other `(label` begins a constituent. A constituent is
# sound, that is, well formed, in two cases. First: a bracket follows the label directly. Second:
# after the label come blanks, then a string, then "(". A string may be empty.
_TOKEN = re.compile(
    rb"""\( (?P<label> [^()\s]*+ )
            (?: \s++ (?P<word> [^()\s]*+ ) \)
              | (?P<sound> (?= [()] | \s++ [^()\s]*+ \( ) ) )?
       | (?P<close> \) )
       | [^()\s]  # a bare word""",
    re.VERBOSE,
)
_LABEL, _WORD, _SOUND, _CLOSE = (_TOKEN.groupindex[n] for n in ("label", "word", "sound", "close"))

# The sizes of EVALB's arrays.
_BYTES, _WORDS, _BRACKETS, _QUOTES = 4999, 200, 200, 20
_LONG_LABEL = re.compile(rb"\([^()\s]{30}")
_LONG_WORD = re.compile(rb"\([^()\s]*+\s++[^()\s]{100}")


@dataclass(slots=True)
class Quote:
    """A quotation mark of a sentence, deleted or not."""

    word: bytes
    tag: bytes
    place: int
    """Number of words before the mark, without words whose tags are deleted."""
    brackets: int
    """Number of brackets that open before the mark."""
    around: tuple[int, ...]
    """The brackets that are open at the mark, each as its number in the sentence, from 0."""


@dataclass(slots=True)
class EvalbSentence:
    """A line as EVALB sees it. Brackets are numbered from 0 in the order in which they open."""

    length: int = 0
    """Number of all words, also deleted ones, except those whose tag is in `not_in_length`."""
    words: list[bytes] = field(default_factory=list)
    """Words, without those whose tag is deleted."""
    tags: list[bytes] = field(default_factory=list)
    """The full tag of each word."""
    labels: list[bytes] = field(default_factory=list)
    """The full label of each bracket."""
    starts: list[int] = field(default_factory=list)
    """For each bracket, the number of words before it."""
    ends: list[int] = field(default_factory=list)
    """For each bracket, the number of words up to its end; UNCLOSED if it is never closed."""
    quotes: list[Quote] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    """EVALB's messages about this line."""
    stuck: bool = False
    """Whether the line has a word without its own bracket, at which EVALB loops without end."""
    remarks: list[str] = field(default_factory=list)
    """Our notes, if EVALB misreads this line, has no room for it, or never finishes reading it."""


def read_sentence(line: bytes, parameters: EvalbParameters) -> EvalbSentence:
    """Read one line, with or without its line end; reading stops at a word without a bracket."""
    sentence, open_brackets, surplus = EvalbSentence(), list[int](), 0
    for token in _TOKEN.finditer(line):
        kind = token.lastindex
        if kind == _WORD:
            _add_word(token[_LABEL], token[_WORD], sentence, open_brackets, parameters)
        elif kind == _CLOSE:
            if open_brackets:
                sentence.ends[open_brackets.pop()] = len(sentence.words)
            else:
                surplus += 1
        elif kind is None:
            sentence.stuck = True
            if line.startswith(BOM_UTF8):
                sentence.remarks.append(
                    "begins with a byte order mark, which the official program never gets past: "
                    "save the file without it"
                )
            break
        else:
            if kind != _SOUND:
                _say_unsound(line[token.end() :], sentence)
            open_brackets.append(len(sentence.starts))
            sentence.labels.append(token[_LABEL])
            sentence.starts.append(len(sentence.words))
            sentence.ends.append(UNCLOSED)
    if surplus:
        sentence.messages.append("Bracketing unbalance (too many close bracket)")
        sentence.remarks.append(
            f"has {surplus} closing bracket{'s' * (surplus > 1)} too many, where the official "
            "program reads memory outside the sentence: ignored here, and counted as an error"
        )
    if open_brackets and not sentence.stuck:
        sentence.messages.append("Bracketing is unbalanced (too many open bracket)")
    sentence.remarks.extend(_too_large(line, sentence))
    return sentence


def _add_word(
    tag: bytes, word: bytes, sentence: EvalbSentence, around: list[int], parameters: EvalbParameters
) -> None:
    sentence.length += tag not in parameters.not_in_length
    if tag in parameters.quotes and word in QUOTE_MARKS:
        place, brackets = len(sentence.words), len(sentence.starts)
        sentence.quotes.append(Quote(word, tag, place, brackets, tuple(around)))
    if tag not in parameters.deleted:
        sentence.words.append(word)
        sentence.tags.append(tag)


def _say_unsound(rest: bytes, sentence: EvalbSentence) -> None:
    if rest.strip():
        sentence.messages.append("More than two elements in a bracket")
    else:
        sentence.remarks.append(
            "ends inside a bracket, where the official program goes on with text of earlier lines: "
            "read here as a bracket that is not closed"
        )


def _too_large(line: bytes, sentence: EvalbSentence) -> Iterator[str]:
    """Yield a remark if a part of the line does not fit EVALB's arrays."""
    sizes = [
        (len(line.rstrip(b"\n")) + 1, _BYTES, "bytes"),
        (len(sentence.words), _WORDS, "words"),
        (len(sentence.starts), _BRACKETS, "brackets"),
        (len(sentence.quotes), _QUOTES, "quotation marks"),
    ]
    found = [f"{size:,} {what} (at most {most:,})" for size, most, what in sizes if size > most]
    if _LONG_LABEL.search(line):
        found.append("a label of more than 29 bytes")
    if _LONG_WORD.search(line):
        found.append("a word of more than 99 bytes")
    if found:
        yield f"has {', '.join(found)}, which the official program cannot hold: read here in full"
