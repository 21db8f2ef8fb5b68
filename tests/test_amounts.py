"""An amount has three digits and the unit that suits its rounded number."""

from collections.abc import Mapping

import pytest

from regard.amounts import BYTES, NUMBERS, SECONDS, amount


@pytest.mark.parametrize(
    ("value", "units", "text"),
    [
        (999_400_000, BYTES, "999 MB"),
        (999_700_000, BYTES, "1 GB"),
        (999_700_000, NUMBERS, "1,000 M"),  # there is no larger unit
        (1_234_000_000, NUMBERS, "1,234 M"),
        (999.7 * 86_400, SECONDS, "1,000 days"),
        (86_400, SECONDS, "1 day"),
        (1.5 * 86_400, SECONDS, "1.5 days"),
        (0.0004, SECONDS, "0.4 ms"),
        (65, NUMBERS, "65"),
    ],
)
def test_amounts(value: float, units: Mapping[str, float], text: str) -> None:
    assert amount(value, units) == text
