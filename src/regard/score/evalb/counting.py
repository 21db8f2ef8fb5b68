"""The figures of one sentence: brackets that match or cross, and tags that agree."""

from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple

from regard.score.evalb.parameters import EvalbParameters
from regard.score.evalb.quotes import put_back
from regard.score.evalb.reading import EvalbSentence

Bracket = tuple[bytes, int, int]
"""The label without function tags and indices, the number of words before the bracket's start, and
the number of words before its end (UNCLOSED if the bracket is never closed)."""


class BracketCounts(NamedTuple):
    """The counts of a sentence, or their sums over many sentences."""

    matched: int = 0
    gold_brackets: int = 0
    test_brackets: int = 0
    crossing: int = 0
    """Number of test brackets that cross at least one gold bracket."""
    words: int = 0
    correct_tags: int = 0

    @property
    def recall(self) -> float:
        """Percentage of the gold brackets that are matched; 0 without gold brackets."""
        return 100.0 * self.matched / self.gold_brackets if self.gold_brackets else 0.0

    @property
    def precision(self) -> float:
        """Percentage of the test brackets that match; 0 without test brackets."""
        return 100.0 * self.matched / self.test_brackets if self.test_brackets else 0.0

    @property
    def tagging_accuracy(self) -> float:
        """Percentage of the words whose tags agree; 0 without words."""
        return 100.0 * self.correct_tags / self.words if self.words else 0.0


def mismatch(gold: EvalbSentence, test: EvalbSentence, parameters: EvalbParameters) -> str | None:
    """Why two sentences cannot be compared, in EVALB's words; None if they can be.

    If the sentences have different numbers of words, `put_back` first changes the sentences: a
    quotation mark that only one of them deletes is put back.
    """
    if len(gold.words) != len(test.words):
        put_back(gold, test, parameters)
    if len(gold.words) != len(test.words):
        return f"Length unmatch ({len(gold.words)}|{len(test.words)})"
    if gold.words != test.words:
        for pair in zip(gold.words, test.words, strict=True):
            if not parameters.same_word(*pair):
                one, other = (word.decode("utf-8", "surrogateescape") for word in pair)
                return f"Words unmatch ({one}|{other})"
    return None


def count(gold: EvalbSentence, test: EvalbSentence, parameters: EvalbParameters) -> BracketCounts:
    """The counts for two sentences that have the same words."""
    gold_brackets, test_brackets = _kept(gold, parameters), _kept(test, parameters)
    return BracketCounts(
        _matched(gold_brackets, test_brackets, parameters),
        len(gold_brackets),
        len(test_brackets),
        _crossing(gold_brackets, test_brackets, len(gold.words)),
        len(gold.words),
        sum(map(parameters.same_label, gold.tags, test.tags)),
    )


def _kept(sentence: EvalbSentence, parameters: EvalbParameters) -> list[Bracket]:
    """Brackets that hold a word or are never closed, except brackets whose label is deleted."""
    deleted = parameters.deleted_brackets
    return [
        (cut, start, end)
        for label, start, end in zip(sentence.labels, sentence.starts, sentence.ends, strict=True)
        if start != end and (cut := _cut(label)) not in deleted
    ]


@lru_cache
def _cut(label: bytes) -> bytes:
    """A label without its function tags and indices: the bytes before the first - or =."""
    return label.partition(b"-")[0].partition(b"=")[0]


def _matched(gold: list[Bracket], test: list[Bracket], parameters: EvalbParameters) -> int:
    """Count matches: a gold bracket takes the first free test bracket of equal span and label.

    If `parameters.labelled` is False, the labels may differ.
    """
    free = defaultdict(list)
    for label, *span in test:
        free[tuple(span)].append(label)
    matched = 0
    for label, *span in gold:
        candidates = free.get(tuple(span), [])
        for position, other in enumerate(candidates):
            if not parameters.labelled or parameters.same_label(label, other):
                del candidates[position]
                matched += 1
                break
    return matched


def _crossing(gold: list[Bracket], test: list[Bracket], words: int) -> int:
    """Count the test brackets that overlap a gold bracket while neither contains the other."""
    first = [words] * (words + 1)  # first[end]: where the longest gold bracket with this end starts
    last = [0] * (words + 1)  # last[start]: where the longest gold bracket with this start ends
    for _, start, end in gold:
        if start < end:  # a bracket that is never closed crosses no bracket
            first[end] = min(first[end], start)
            last[start] = max(last[start], end)
    return sum(
        min(first[start + 1 : end]) < start or max(last[start + 1 : end]) > end
        for _, start, end in test
        if start + 1 < end
    )
