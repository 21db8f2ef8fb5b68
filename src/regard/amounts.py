"""Amounts as text for people: write a number with a unit (1.26 GB), and read a time (1h30m)."""

import re
from collections.abc import Mapping

from regard.errors import RegardError

BYTES = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "bytes": 1.0}
SECONDS = {"days": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}
_SINGULAR = {"bytes": "byte", "days": "day"}
NUMBERS = {"M": 1e6, "thousand": 1e3, "": 1.0}


def amount(value: float, units: Mapping[str, float]) -> str:
    """`value` as text, in the largest unit in which the rounded number is 1 or more.

    The number is rounded to three significant digits or, from 1,000 on, to a whole number. `units`
    maps the names of units to their sizes, in descending order. A `value` that is too small for
    every unit is given in the last unit, as a number below 1.

    >>> amount(1_260_000_000, BYTES)
    '1.26 GB'
    """
    fitting = [(unit, size) for unit, size in units.items() if value >= 0.9995 * size]
    unit, size = fitting[0] if fitting else list(units.items())[-1]
    scaled = value / size
    number = f"{scaled:,.0f}" if scaled >= 999.5 else f"{scaled:.3g}"
    return f"{number} {_SINGULAR.get(unit, unit) if number == '1' else unit}".rstrip()


def count_of(count: int, noun: str) -> str:
    """`count` and a noun as text; the noun gets an s unless `count` is 1.

    >>> count_of(1, "pair"), count_of(2000, "pair")
    ('1 pair', '2,000 pairs')
    """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def seconds_in(duration: str) -> float:
    """The number of seconds in a time such as 90s, 30m, 1h30m or 2d.

    The units d, h, m and s stand in this order, each at most once. A number may have decimals.
    Raises RegardError for other text, and for a time below 1 s or above 6e7 s (694 days).

    >>> seconds_in("1h30m")
    5400.0
    """
    number = r"(\d+(?:\.\d+)?)"
    found = re.fullmatch(rf"(?:{number}d)?(?:{number}h)?(?:{number}m)?(?:{number}s)?", duration)
    parts = found.groups() if found else ()
    if not any(parts):
        raise RegardError(f"--time {duration}: write it as 90s, 30m, 8h, 2d or 1h30m")
    seconds = sum(float(n or 0) * s for n, s in zip(parts, (86_400, 3600, 60, 1), strict=True))
    if not 1 <= seconds <= 6e7:
        raise RegardError(f"--time {duration}: give a time from 1s to 694d")
    return seconds
