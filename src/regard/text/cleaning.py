"""§5.1 Which sentence pairs are learned from: a corpus of millions is never clean.

The rules are those of a recipe's data section. A pair is judged by its text first, which is cheap,
and by its pieces once it has been encoded.
"""

from enum import StrEnum

from regard.recipe import DataRecipe

LONGEST_PIECE = 40
"""Characters a piece: a line of more than max_length times as many is too long without encoding."""
SHORT = 10
"""Characters up to which a pair may differ in length by any ratio."""


class Verdict(StrEnum):
    """What becomes of a pair: kept for training, or the reason why it is not."""

    KEPT = "kept"
    EMPTY = "empty"
    TOO_LONG = "too_long"
    RATIO = "ratio"
    DUPLICATE = "duplicates"
    HELD_OUT = "held_out"


def judge_text(source: str, target: str, rules: DataRecipe) -> Verdict:
    """EMPTY (a side without a visible character), TOO_LONG, RATIO or KEPT."""
    if is_empty(source, target):
        return Verdict.EMPTY
    shorter, longer = sorted((len(source), len(target)))
    if longer > rules.max_length * LONGEST_PIECE:
        return Verdict.TOO_LONG
    if longer > SHORT and longer > rules.max_ratio * shorter:
        return Verdict.RATIO
    return Verdict.KEPT


def judge_length(source_pieces: int, target_pieces: int, rules: DataRecipe) -> Verdict:
    """TOO_LONG or KEPT, by pieces without </s>, which max_length counts."""
    fits = max(source_pieces, target_pieces) < rules.max_length
    return Verdict.KEPT if fits else Verdict.TOO_LONG


def is_empty(source: str, target: str) -> bool:
    """Whether a side has nothing but white space."""
    return not (source and target) or source.isspace() or target.isspace()
