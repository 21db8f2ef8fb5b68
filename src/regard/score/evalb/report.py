"""The figures of a corpus as EVALB prints them: a row per sentence, totals, two summaries."""

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from regard.score.evalb.counting import BracketCounts

_RULE = "=" * 76
HEADER = (
    "  Sent.                        Matched  Bracket   Cross        Correct Tag\n"
    " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy\n" + _RULE
)


class Status(IntEnum):
    """EVALB's verdict on a sentence."""

    VALID = 0
    ERROR = 1
    """EVALB has a message: some brackets are malformed, or the words differ from the treebank's."""
    SKIPPED = 2
    """The test sentence has no words."""


class Row(NamedTuple):
    """A row of the table: line number, length of the gold tree in words, status and counts."""

    line: int
    length: int
    status: Status
    counts: BracketCounts

    def __str__(self) -> str:
        c = self.counts
        return (
            f"{self.line:4}  {self.length:3}    {self.status:d}  "
            f"{c.recall:6.2f} {c.precision:6.2f}   "
            f"{c.matched:3}    {c.gold_brackets:3}  {c.test_brackets:3}    {c.crossing:3}   "
            f"{c.words:4}  {c.correct_tags:4}   {c.tagging_accuracy:6.2f}"
        )


@dataclass
class LengthSummary:
    """The figures of many sentences: all sentences of a corpus, or only short ones."""

    sentences: int = 0
    error: int = 0
    skip: int = 0
    counts: BracketCounts = field(default_factory=BracketCounts)
    """Sums over the valid sentences."""
    complete: int = 0
    """Valid sentences in which all gold brackets and all test brackets match."""
    without_crossing: int = 0
    """Valid sentences in which no test bracket crosses a gold bracket."""
    few_crossing: int = 0
    """Valid sentences in which at most two test brackets cross a gold bracket."""

    def add(self, row: Row) -> None:
        """Add the figures of a sentence."""
        self.sentences += 1
        self.error += row.status == Status.ERROR
        self.skip += row.status == Status.SKIPPED
        if row.status == Status.VALID:
            counts = row.counts
            self.counts = BracketCounts(*map(sum, zip(self.counts, counts, strict=True)))
            self.complete += counts.gold_brackets == counts.test_brackets == counts.matched
            self.without_crossing += counts.crossing == 0
            self.few_crossing += counts.crossing <= 2

    @property
    def valid(self) -> int:
        """The number of sentences that are neither errors nor skipped."""
        return self.sentences - self.error - self.skip

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 0 to 100; NaN if both are 0."""
        p, r = self.counts.precision, self.counts.recall
        return 2 * p * r / (p + r) if p + r else math.nan

    def figures(self) -> dict[str, int | float]:
        """The printed figures, before rounding; keyed by their names in the JSON output."""
        valid = self.valid
        return {
            "sentences": self.sentences,
            "error": self.error,
            "skip": self.skip,
            "valid": valid,
            "recall": self.counts.recall,
            "precision": self.counts.precision,
            "f": self.f1,
            "complete_match": 100.0 * self.complete / valid if valid else 0.0,
            "average_crossing": self.counts.crossing / valid if valid else 0.0,
            "no_crossing": 100.0 * self.without_crossing / valid if valid else 0.0,
            "two_or_less_crossing": 100.0 * self.few_crossing / valid if valid else 0.0,
            "tagging_accuracy": self.counts.tagging_accuracy,
        }


_NAMES = {
    "sentences": "Number of sentence",
    "error": "Number of Error sentence",
    "skip": "Number of Skip  sentence",
    "valid": "Number of Valid sentence",
    "recall": "Bracketing Recall",
    "precision": "Bracketing Precision",
    "f": "Bracketing FMeasure",
    "complete_match": "Complete match",
    "average_crossing": "Average crossing",
    "no_crossing": "No crossing",
    "two_or_less_crossing": "2 or less crossing",
    "tagging_accuracy": "Tagging accuracy",
}


@dataclass
class BracketScores:
    """The figures of a corpus: for all sentences, and for those of at most `cutoff` words."""

    cutoff: int = 40
    all: LengthSummary = field(default_factory=LengthSummary)
    short: LengthSummary = field(default_factory=LengthSummary)

    def add(self, row: Row) -> None:
        """Add the figures of a sentence."""
        self.all.add(row)
        if row.length <= self.cutoff:
            self.short.add(row)

    def totals(self) -> str:
        """The row of totals below the table, with a line of equals signs above the row."""
        c = self.all.counts
        brackets = (
            f"{'':16}{c.recall:6.2f} {c.precision:6.2f} {c.matched:6} {c.gold_brackets:5} "
            f"{c.test_brackets:5}  {c.crossing:5}"
        )
        tags = f"  {c.words:5} {c.correct_tags:5}   {c.tagging_accuracy:6.2f}"
        return f"{_RULE}\n{brackets if c.gold_brackets and c.test_brackets else ''}{tags}"

    def summary(self) -> str:
        """`all` and `short` as text, with one figure on each line."""
        lines = ["=== Summary ==="]
        for title, block in (("All", self.all), (f"len<={self.cutoff}", self.short)):
            lines += ["", f"-- {title} --"]
            for key, value in block.figures().items():
                lines.append(f"{_NAMES[key]:<25} = {_printed(value):>6}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The printed figures by name; a NaN becomes None and is listed in `printed_as_nan`."""
        c = self.all.counts
        brackets = {"recall": c.recall, "precision": c.precision, **c._asdict()}
        keys = list(brackets) if c.gold_brackets and c.test_brackets else ["words", "correct_tags"]
        row = {key: brackets[key] for key in keys} | {"tagging_accuracy": c.tagging_accuracy}
        return {
            "cutoff": self.cutoff,
            "all": _rounded(self.all.figures()),
            "len_le_cutoff": _rounded(self.short.figures()),
            "totals_row": _rounded(row),
        }


def _printed(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return "-nan" if math.isnan(value) else f"{value:.2f}"  # as C on x86-64 prints 0 / 0


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    shown = {k: float(_printed(v)) if isinstance(v, float) else v for k, v in figures.items()}
    absent = [key for key, value in figures.items() if math.isnan(value)]
    listed = {"printed_as_nan": [f"{key}={_printed(figures[key])}" for key in absent]}
    return shown | dict.fromkeys(absent) | (listed if absent else {})
