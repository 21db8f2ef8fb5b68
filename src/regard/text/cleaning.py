"""§5.1 Choose the sentence pairs to learn from: a corpus of millions of pairs is never clean.

The rules come from a recipe's data section and from the two constants below. A pair is judged first
by its characters, which is cheap, and again after encoding, by the number of tokens of each side.
"""

from enum import StrEnum

from regard.recipe import DataRecipe

LONGEST_PIECE = 40
"""A line is too long if it has more characters than this number times data.max_length."""
SHORT = 10
"""A pair whose longer side has at most this many characters may have any ratio of lengths."""


class Verdict(StrEnum):
    """Whether a pair is kept for training, or else why it is dropped."""

    KEPT = "kept"
    EMPTY = "empty"
    TOO_LONG = "too_long"
    RATIO = "ratio"
    DUPLICATE = "duplicates"
    HELD_OUT = "held_out"


def judge_text(source: str, target: str, rules: DataRecipe) -> Verdict:
    """Judge a pair by its characters: EMPTY (one side or both), TOO_LONG, RATIO or KEPT.

    RATIO means that the longer side has more than SHORT characters, and more than `rules.max_ratio`
    times as many as the shorter side.
    """
    if is_empty(source, target):
        return Verdict.EMPTY
    shorter, longer = sorted((len(source), len(target)))
    if longer > rules.max_length * LONGEST_PIECE:
        return Verdict.TOO_LONG
    if longer > SHORT and longer > rules.max_ratio * shorter:
        return Verdict.RATIO
    return Verdict.KEPT


def judge_length(source_tokens: int, target_tokens: int, rules: DataRecipe) -> Verdict:
    """Judge a pair by its numbers of tokens: TOO_LONG or KEPT.

    A pair is too long if a side has more than `rules.max_length` tokens. This limit counts </s>;
    `source_tokens` and `target_tokens` do not.
    """
    fits = max(source_tokens, target_tokens) < rules.max_length
    return Verdict.KEPT if fits else Verdict.TOO_LONG


def is_empty(source: str, target: str) -> bool:
    """Whether at least one side is empty or has only white space."""
    return not (source and target) or source.isspace() or target.isspace()
