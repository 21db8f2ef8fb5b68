"""Table 4's F1: compare the brackets of parsed sentences with the brackets of a treebank.

The figures, to the last printed digit, and the messages are the same as EVALB's (Sekine and
Collins, 1997), the program with which the field compares parsers.
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
    """A message that EVALB prints about a line; each message counts as an error."""

    line: int
    text: str


class Remark(NamedTuple):
    """Our note on a line that EVALB has no room for, misreads, or never finishes reading."""

    side: Literal["gold", "test"]
    line: int
    text: str


class TooManyErrors(DataError):
    """The comparison ended: a message came after more than `max_errors` other messages."""


def compare(
    gold: Iterable[bytes], test: Iterable[bytes], parameters: EvalbParameters = COLLINS
) -> Iterator[Row | Message | Remark]:
    """Compare trees line by line, as bytes, with one sentence on each line.

    Yields rows and messages in the order in which EVALB prints them, and our remarks between them.
    Raises TooManyErrors after a message if more than `parameters.max_errors` messages came before
    this message. A word without a bracket of its own always raises TooManyErrors, because EVALB
    repeats its message about such a word without end.
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
    """Counts messages; raises TooManyErrors after a message if more than `most` came before it."""

    most: int
    before: int = 0

    def tell(self, line: int, text: str) -> Iterator[Message]:
        yield Message(line, text)
        if self.before > self.most:
            raise TooManyErrors(
                f"line {line} of the trees: {text}, which is error {self.before + 1} where at most "
                f"{self.most + 1} are allowed: correct the lines, one tree on each, or allow more"
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
    """The figures of a whole corpus, from the trees that `compare` takes; raises TooManyErrors."""
    scores = BracketScores(parameters.cutoff)
    for said in compare(gold, test, parameters):
        if isinstance(said, Row):
            scores.add(said)
    return scores
