"""Table 4's F1: brackets of parsed sentences against a treebank's, sentence by sentence.

The figures and the messages are those of EVALB (Sekine and Collins, 1997), with which the field
compares parsers, to the last digit printed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from regard.errors import DataError
from regard.score.evalb.counting import BracketCounts, count, mismatch
from regard.score.evalb.parameters import COLLINS, EvalbParameters
from regard.score.evalb.reading import EvalbSentence, read_sentence
from regard.score.evalb.report import BracketScores, Row, Status


class Message(NamedTuple):
    """What EVALB says of a line. Each is an error to be counted."""

    line: int
    text: str


class Remark(NamedTuple):
    """What is to be said of a line that EVALB could not hold, or would misread without a word."""

    side: Literal["gold", "test"]
    line: int
    text: str


class TooManyErrors(DataError):
    """The run was ended by a message that found more than `max_errors` before it."""


def compare(
    gold: Iterable[bytes], test: Iterable[bytes], parameters: EvalbParameters = COLLINS
) -> Iterator[Row | Message | Remark]:
    """Compare line by line, in bytes, one sentence a line. Yields in the order of the program.

    Raises TooManyErrors, after the message that was one too many. A bare word between brackets is
    always one too many, because the program says so again and again.
    """
    errors, line, test_lines = _Errors(parameters.max_errors), 0, iter(test)
    for line, gold_line in enumerate(gold, start=1):
        expected = read_sentence(gold_line, parameters)
        yield from _said(expected, "gold", line, errors)
        test_line = next(test_lines, None)
        if test_line is None:
            yield from errors.tell(line, _UNEVEN.format("gold"))
            return
        found = read_sentence(test_line, parameters)
        yield from _said(found, "test", line, errors)
        status, counts = Status.VALID, BracketCounts()
        if not found.words:
            status = Status.SKIPPED
        elif problem := mismatch(expected, found, parameters):
            yield from errors.tell(line, problem)
            status = Status.ERROR
        else:
            counts = count(expected, found, parameters)
            if expected.messages or found.messages:
                status = Status.ERROR
        yield Row(line, expected.length, status, counts)
    if next(test_lines, None) is not None:
        yield from errors.tell(line + 1, _UNEVEN.format("test"))


_UNEVEN = "Number of lines unmatch (too many lines in {} file)"


@dataclass
class _Errors:
    """How many errors there have been, and how many there may be."""

    most: int
    before: int = 0

    def tell(self, line: int, text: str) -> Iterator[Message]:
        yield Message(line, text)
        if self.before > self.most:
            raise TooManyErrors(
                f"line {line} of the trees: {text}, the last of {self.before + 1} errors where at "
                f"most {self.most + 1} may be: mend the lines, a tree on each, or allow more"
            )
        self.before += 1


def _said(
    sentence: EvalbSentence, side: Literal["gold", "test"], line: int, errors: _Errors
) -> Iterator[Message | Remark]:
    for text in sentence.remarks:
        yield Remark(side, line, text)
    for text in sentence.messages:
        yield from errors.tell(line, text)
    while sentence.stuck:
        yield from errors.tell(line, "Reading sentence")


def score_brackets(
    gold: Iterable[bytes], test: Iterable[bytes], parameters: EvalbParameters = COLLINS
) -> BracketScores:
    """The figures of a corpus, as bytes, one sentence a line; raises TooManyErrors."""
    scores = BracketScores(parameters.cutoff)
    for said in compare(gold, test, parameters):
        if isinstance(said, Row):
            scores.add(said)
    return scores
