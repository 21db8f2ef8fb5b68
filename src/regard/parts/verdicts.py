"""Give verdicts on claims from measured values, by the same few rules for every claim.

Two models are compared seed by seed: for each seed, both models see the same text in the same
order. The verdict on a comparison is UNDECIDED unless the one-sided 95 % bounds of the mean
difference (Student's t) support HOLDS or FAILS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, stdev

STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)
"""The 95 % quantiles of Student's t for 1, 2, ... degrees of freedom."""


class Judgement(StrEnum):
    """The answer that the measured values give to a claim."""

    HOLDS = "holds"
    FAILS = "does not hold here"
    UNDECIDED = "cannot be decided at this size"


ENGLISH = {verdict: str(verdict) for verdict in Judgement}
KOREAN = {
    Judgement.HOLDS: "성립",
    Judgement.FAILS: "여기서는 성립하지 않음",
    Judgement.UNDECIDED: "이 크기로는 판정할 수 없음",
}


@dataclass(frozen=True)
class Quantity:
    """A measured quantity: one value for each seed."""

    label: str
    values: tuple[float, ...]
    digits: int = 1
    """How many digits are shown after the point. If this is 0 or more than 4, three significant
    digits are shown instead."""

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return fmean(self.values)

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds; None for one seed."""
        return stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        form = f".{self.digits}f" if 0 < self.digits < 5 else ".3g"
        spread = "" if self.spread is None else f" ± {self.spread:{form}}"
        return f"{self.label}: {self.mean:{form}}{spread}"


@dataclass(frozen=True)
class Statement:
    """A statement that a claim implies, with its measured quantities and its verdict."""

    name: str
    statement: str
    figures: tuple[Quantity, ...]
    verdict: Judgement

    def __str__(self) -> str:
        return "; ".join(map(str, self.figures))


def bounds(values: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper 95 % bound, each one-sided, of the mean of values - others.

    `values` and `others` have one number for each seed. The bounds are infinite for one seed. For
    more than ten seeds, they are a little too wide: the quantile of Student's t is that for ten.
    """
    differences = [value - other for value, other in zip(values, others, strict=True)]
    if len(differences) < 2:
        return -math.inf, math.inf
    t = STUDENT[min(len(differences), 10) - 2]
    half = t * stdev(differences) / math.sqrt(len(differences))
    return fmean(differences) - half, fmean(differences) + half


def judge_more(values: Sequence[float], others: Sequence[float]) -> Judgement:
    """The verdict on whether `values` are larger than `others` on average."""
    low, high = bounds(values, others)
    return Judgement.HOLDS if low > 0 else Judgement.FAILS if high < 0 else Judgement.UNDECIDED


def judge_alike(values: Sequence[float], others: Sequence[float], margin: float) -> Judgement:
    """The verdict on whether `values` and `others` differ on average by less than `margin`."""
    low, high = bounds(values, others)
    if -margin < low and high < margin:
        return Judgement.HOLDS
    return Judgement.FAILS if low > margin or high < -margin else Judgement.UNDECIDED


def judge_at_most(values: Sequence[float], bound: float) -> Judgement:
    """The verdict on whether all values are at most `bound`, such as a limit of rounding errors."""
    return Judgement.HOLDS if max(values) <= bound else Judgement.FAILS


def overall(findings: Sequence[Statement]) -> Judgement:
    """The verdict on a claim: FAILS if one of its statements fails, HOLDS if all of them hold.

    In all other cases, for example without any statement, the verdict is UNDECIDED.
    """
    found = {finding.verdict for finding in findings}
    if Judgement.FAILS in found:
        return Judgement.FAILS
    return Judgement.HOLDS if found == {Judgement.HOLDS} else Judgement.UNDECIDED
