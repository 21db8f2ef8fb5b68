"""Amounts as a person reads them: three digits and a unit."""

from collections.abc import Mapping

BYTES = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "bytes": 1.0}
SECONDS = {"days": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}
NUMBERS = {"M": 1e6, "thousand": 1e3, "": 1.0}


def amount(value: float, units: Mapping[str, float]) -> str:
    """The value in the largest unit that it reaches; `units` are in descending order.

    >>> amount(1_260_000_000, BYTES)
    '1.26 GB'
    """
    fitting = [(unit, size) for unit, size in units.items() if value >= 0.9995 * size]
    unit, size = fitting[0] if fitting else list(units.items())[-1]
    scaled = value / size
    return f"{scaled:,.0f} {unit}".rstrip() if scaled >= 1000 else f"{scaled:.3g} {unit}".rstrip()
