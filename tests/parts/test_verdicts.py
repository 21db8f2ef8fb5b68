"""Verdicts from figures: by hand, and by their properties."""

import math
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.parts.verdicts import (
    Judgement,
    Quantity,
    Statement,
    bounds,
    judge_alike,
    judge_at_most,
    judge_more,
    overall,
)

HOLDS, FAILS, UNDECIDED = Judgement.HOLDS, Judgement.FAILS, Judgement.UNDECIDED
VALUES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12)


def test_bounds_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, deviation 1, t 2.920 for two degrees of freedom."""
    low, high = bounds([11, 22, 33], [10, 20, 30])
    assert (low, high) == pytest.approx((2 - 2.920 / 3**0.5, 2 + 2.920 / 3**0.5))


def test_bounds_of_many_seeds_are_rather_too_wide_than_too_narrow() -> None:
    """The 95 % quantile of Student's t for 29 degrees of freedom is 1.699."""
    values = [*range(1, 31)]
    low, high = bounds(values, [0] * 30)
    half = stdev(values) / 30**0.5
    assert 1.699 * half < (high - low) / 2 < 1.9 * half
    assert low + high == pytest.approx(31)


@pytest.mark.parametrize(
    ("values", "others", "expected"),
    [
        ([50, 52, 54], [40, 43, 44], HOLDS),
        ([40, 43, 44], [50, 52, 54], FAILS),
        ([50, 40, 60], [45, 50, 48], UNDECIDED),
        ([50, 52, 54], [49, 40, 53.9], UNDECIDED),  # always higher, by very different amounts
        ([50], [1], UNDECIDED),  # one seed decides nothing
        ([5, 5], [5, 5], UNDECIDED),
        ([6, 6], [5, 5], HOLDS),
    ],
)
def test_more(values: list[float], others: list[float], expected: Judgement) -> None:
    assert judge_more(values, others) is expected


@pytest.mark.parametrize(
    ("values", "others", "expected"),
    [
        ([50.1, 51.9, 54.0], [50, 52, 54], HOLDS),
        ([55, 57, 59.1], [50, 52, 54], FAILS),
        ([50, 52, 54], [55, 57, 59.1], FAILS),
        ([51, 50, 56], [50, 52, 54], UNDECIDED),
        ([50], [50], UNDECIDED),
    ],
)
def test_alike(values: list[float], others: list[float], expected: Judgement) -> None:
    assert judge_alike(values, others, margin=1.0) is expected


@given(VALUES, st.data())
def test_more_is_the_opposite_when_exchanged(values: list[float], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.floats(-1e3, 1e3), min_size=len(values), max_size=len(values)))
    opposite = {HOLDS: FAILS, FAILS: HOLDS, UNDECIDED: UNDECIDED}
    assert judge_more(others, values) is opposite[judge_more(values, others)]


@given(VALUES, st.floats(0.1, 10))
def test_a_constant_difference_is_decided(values: list[float], shift: float) -> None:
    values = [round(value) for value in values]
    higher = [value + shift for value in values]
    assert judge_more(higher, values) is HOLDS
    assert judge_alike(higher, values, 2 * shift) is HOLDS
    assert judge_alike(higher, values, shift / 2) is FAILS


def test_at_most() -> None:
    assert judge_at_most([1e-8, 2e-7], 2e-7) is HOLDS
    assert judge_at_most([1e-8, 3e-7], 2e-7) is FAILS
    assert judge_at_most([math.inf], 2e-7) is FAILS


def test_a_claim_fails_if_a_statement_does() -> None:
    def findings(*verdicts: Judgement) -> list[Statement]:
        return [Statement("x", "", (), verdict) for verdict in verdicts]

    assert overall(findings(HOLDS, HOLDS)) is HOLDS
    assert overall(findings(HOLDS, UNDECIDED)) is UNDECIDED
    assert overall(findings(UNDECIDED, HOLDS, FAILS)) is FAILS
    assert overall(findings()) is UNDECIDED


def test_figures_as_text() -> None:
    assert str(Quantity("base", (50.0, 52.0, 54.0))) == "base: 52.0 ± 2.0"
    assert str(Quantity("error", (7.1e-8,), 0)) == "error: 7.1e-08"
    assert Quantity("one", (1.0,)).spread is None
