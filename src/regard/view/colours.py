"""A colour for each head: all are equally light, so that they are visible on white and on black."""

from __future__ import annotations

import math
from collections.abc import Sequence

LIGHTNESS, CHROMA = 0.61, 0.13
"""Coordinates in OKLCH (Ottosson 2020), in which colours of equal lightness look equally light.
With these values, every hue has a contrast of more than 3 : 1 with a white and with a dark page, as
WCAG requires for graphics."""

# _LMS is the matrix from OKLab's a and b to cube roots of cone responses. The column for OKLab's
# lightness is left out: it has only ones. _RGB is the matrix from cone responses to linear RGB.
_LMS = (
    (0.3963377774, 0.2158037573),
    (-0.1055613458, -0.0638541728),
    (-0.0894841775, -1.2914855480),
)
_RGB = (
    (4.0767416621, -3.3077115913, 0.2309699292),
    (-1.2684380046, 2.6097574011, -0.3413193965),
    (-0.0041960863, -0.7034186147, 1.7076147010),
)


def head_colours(heads: int) -> list[str]:
    """One colour `#rrggbb` per head; neighbouring heads have clearly different hues."""
    step = max((n for n in range(1, heads // 2 + 1) if math.gcd(n, heads) == 1), default=1)
    return [_rgb(2 * math.pi * (0.07 + head * step / heads)) for head in range(heads)]


def _rgb(hue: float) -> str:
    a, b = CHROMA * math.cos(hue), CHROMA * math.sin(hue)
    lms = [(LIGHTNESS + of_a * a + of_b * b) ** 3 for of_a, of_b in _LMS]
    return "#" + "".join(f"{_byte(_dot(row, lms)):02x}" for row in _RGB)


def _dot(row: Sequence[float], column: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(row, column, strict=True))


def _byte(linear: float) -> int:
    linear = min(1.0, max(0.0, linear))
    return round(
        255 * (12.92 * linear if linear < 0.0031308 else 1.055 * linear ** (1 / 2.4) - 0.055)
    )
