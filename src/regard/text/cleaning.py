"""§5.1 Which sentence pairs are learned from: a corpus of millions of pairs is never clean.

The rules are in a recipe's data section. A pair is judged first by its text, which is cheap, and
then, once it has been encoded, by its number of tokens.
"""

from enum import StrEnum

from regard.recipe import DataRecipe

LONGEST_PIECE = 40
"""Characters of a very long sub-word: a line over max_length times this is too long unencoded."""
SHORT = 10
"""Characters up to which the two sides of a pair may differ in length by any ratio."""


class Verdict(StrEnum):
    """The fate of a pair: kept for training, or the reason why it is dropped."""

    KEPT = "kept"
    EMPTY = "empty"
    TOO_LONG = "too_long"
    RATIO = "ratio"
    DUPLICATE = "duplicates"
    HELD_OUT = "held_out"


def judge_text(source: str, target: str, rules: DataRecipe) -> Verdict:
    """EMPTY (a side has no visible character), TOO_LONG, RATIO or KEPT, by the characters."""
    if is_empty(source, target):
        return Verdict.EMPTY
    shorter, longer = sorted((len(source), len(target)))
    if longer > rules.max_length * LONGEST_PIECE:
        return Verdict.TOO_LONG
    if longer > SHORT and longer > rules.max_ratio * shorter:
        return Verdict.RATIO
    return Verdict.KEPT


def judge_length(source_tokens: int, target_tokens: int, rules: DataRecipe) -> Verdict:
    """TOO_LONG or KEPT, by the tokens without </s>; max_length includes it."""
    fits = max(source_tokens, target_tokens) < rules.max_length
    return Verdict.KEPT if fits else Verdict.TOO_LONG


def is_empty(source: str, target: str) -> bool:
    """Whether one side, or both, has nothing but white space."""
    return not (source and target) or source.isspace() or target.isspace()
