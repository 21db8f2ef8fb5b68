"""A drawing of points or lines as one SVG element, without script or style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 640, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 150, 20, 50
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#8c6d31")
_MARKS = 5
"""The approximate number of marks on an axis."""


@dataclass(frozen=True)
class Series:
    """Points of one colour, each as x, y and a text; if `line` is True, a line joins the points."""

    name: str
    points: tuple[tuple[float, float, str], ...]
    line: bool = False


@dataclass(frozen=True)
class Axis:
    """The name of an axis, and whether it is logarithmic."""

    name: str
    log: bool = False

    def of(self, value: float) -> float:
        """The place of a value on the axis: the value or, on a logarithmic axis, its log10."""
        return math.log10(value) if self.log else value

    def marks(self, low: float, high: float) -> list[tuple[float, str]]:
        """For each mark between the places `low` and `high`, its place on the axis and its text.

        Marks are at round values.
        """
        if self.log and high - low >= 1:
            every = max(1, round((high - low) / _MARKS))
            powers = range(math.ceil(low), math.floor(high) + 1, every)
            return [(float(power), f"1e{power}" if power > 3 else f"{10.0**power:g}")
                    for power in powers]  # fmt: skip
        least, most = (10**low, 10**high) if self.log else (low, high)
        step = _round_step((most - least) / _MARKS)
        values = [step * i for i in range(math.ceil(least / step), math.floor(most / step) + 1)]
        return [(self.of(value), f"{value:.4g}") for value in values]


def chart(title: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """Draw series on two axes, and return the SVG element.

    Points that are not finite are left out, and so are points at 0 or less on a logarithmic axis,
    and series without points.
    """
    drawn = [Series(s.name, _drawable(s, x, y), s.line) for s in series]
    places = [(x.of(a), y.of(b)) for s in drawn for a, b, _ in s.points]
    to_x = _Line(*_range([p[0] for p in places]), _LEFT, _WIDTH - _RIGHT)
    to_y = _Line(*_range([p[1] for p in places]), _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img" fill="currentColor" '
        'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        *_axes(x, y, to_x, to_y),
    ]
    for number, one in enumerate(s for s in drawn if s.points):
        colour = _COLOURS[number % len(_COLOURS)]
        at = [(to_x(x.of(a)), to_y(y.of(b)), text) for a, b, text in one.points]
        parts += _drawn(one, at, colour)
        parts.append(
            f'<text x="{_WIDTH - _RIGHT + 12}" y="{_TOP + 14 + 18 * number}" fill="{colour}">'
            f"{escape(one.name)}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True)
class _Line:
    """Converts places on an axis to pixels: `low` becomes `first`, and `high` becomes `last`."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, place: float) -> float:
        share = (place - self.low) / (self.high - self.low)
        return round(self.first + share * (self.last - self.first), 1)


def _drawable(series: Series, x: Axis, y: Axis) -> tuple[tuple[float, float, str], ...]:
    def fits(value: float, axis: Axis) -> bool:
        return math.isfinite(value) and (value > 0 or not axis.log)

    return tuple(p for p in series.points if fits(p[0], x) and fits(p[1], y))


def _range(places: Sequence[float]) -> tuple[float, float]:
    low, high = min(places, default=0.0), max(places, default=1.0)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * times for times in (1, 2, 5, 10) if power * times >= rough)


def _axes(x: Axis, y: Axis, to_x: _Line, to_y: _Line) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    grid = 'stroke="currentColor" stroke-opacity="0.2"'
    parts = []
    for place, text in x.marks(to_x.low, to_x.high):
        at = to_x(place)
        parts.append(f'<path d="M{at} {_TOP}V{bottom}" {grid}/>')
        parts.append(f'<text x="{at}" y="{bottom + 16}" text-anchor="middle">{text}</text>')
    for place, text in y.marks(to_y.low, to_y.high):
        at = to_y(place)
        parts.append(f'<path d="M{_LEFT} {at}H{right}" {grid}/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{text}</text>')
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(x.name)}</text>'
    )
    turned = f"translate(14 {(_TOP + bottom) / 2}) rotate(-90)"
    parts.append(f'<text transform="{turned}" text-anchor="middle">{escape(y.name)}</text>')
    return parts


def _drawn(series: Series, at: list[tuple[float, float, str]], colour: str) -> list[str]:
    parts = []
    if series.line:
        path = "L".join(f"{a} {b}" for a, b, _ in at)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    for a, b, text in at:
        parts.append(f'<circle cx="{a}" cy="{b}" r="3.5" fill="{colour}"/>')
        if text:
            parts.append(f'<text x="{a + 6}" y="{b - 4}">{escape(text)}</text>')
    return parts
