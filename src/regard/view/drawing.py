"""Drawings by matplotlib: boxes, circles, bent lines, arrowheads and text; the unit is points."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from regard.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
GREY = "#555d68"
"""The colour of less important text."""
TITLE, DETAIL = 11.0, 8.0
"""Font sizes of titles and of other text, in points."""
_FONTS = (
    "Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo",
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Hiragino Sans", "PingFang SC", "Microsoft YaHei",
)  # fmt: skip
"""Fonts of Linux, macOS and Windows for Korean, Japanese and Chinese, whose characters are missing
in matplotlib's own font."""
_LINE, _LEAD = "#222222", 11.0
"""The colour of lines, and the distance between two lines of text, in points."""
_BEND, _HEAD = 6.0, 5.5
"""The distance from a bend's start to its corner, and the length of an arrowhead, in points."""

Point = tuple[float, float]


@contextmanager
def plotting() -> Iterator[type[Figure]]:
    """A context with regard's settings of matplotlib, to draw in; yields the class `Figure`.

    An SVG keeps its text as text, and on one machine, the same drawing gives the same bytes. Raises
    MissingExtra if matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("--figure", "view") from None
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "regard",
        "font.family": ["sans-serif", *_installed_fonts()],
        "font.size": 9,
        "text.parse_math": False,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # No warning is needed: a character that the font lacks is drawn as an empty box.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        yield Figure


def _installed_fonts() -> list[str]:
    """The names in `_FONTS` whose fonts matplotlib finds on this machine."""
    from matplotlib.font_manager import fontManager

    found = set(fontManager.get_font_names())
    return [name for name in _FONTS if name in found]


def saved(figure: Figure, form: str) -> bytes:
    """The figure as the bytes of an "svg", "png" or "pdf" file; call this within `plotting`."""
    file = io.BytesIO()
    stamp = {"svg": "Date", "pdf": "CreationDate"}.get(form)
    figure.savefig(
        file, format=form, dpi=150, facecolor="white", metadata={stamp: None} if stamp else None
    )
    return file.getvalue()


class Box:
    """The rectangle of a drawn box: its centre, width and height."""

    def __init__(self, x: float, y: float, width: float, height: float):
        self.x, self.y, self.width, self.height = x, y, width, height

    @property
    def top(self) -> float:
        """The y of the upper edge."""
        return self.y + self.height / 2

    @property
    def bottom(self) -> float:
        """The y of the lower edge."""
        return self.y - self.height / 2

    def side(self, way: int) -> Point:
        """The middle of the left edge if `way` is -1, of the right edge if it is 1."""
        return self.x + way * self.width / 2, self.y


class Drawing:
    """A sheet of width x height points; its y axis points upwards. Use it within `plotting`."""

    def __init__(self, sheet: type[Figure], width: float, height: float):
        self.figure = sheet(figsize=(width / 72, height / 72))
        self.axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set_axis_off()
        self.axes.set(xlim=(0, width), ylim=(0, height))

    def box(self, box: Box, colour: str, title: str = "", lines: Sequence[str] = ()) -> Box:
        """Draw and return a box; a title, and smaller lines below the title, are in its middle."""
        self._rectangle(box, colour, 5.0, 2)
        y = box.y + (_LEAD * len(lines) + (TITLE + 2 if title else 0)) / 2
        if title:
            self.text(box.x, y - TITLE / 2 - 1, title, size=TITLE)
            y -= TITLE + 2
        for line in lines:
            self.text(box.x, y - _LEAD / 2, line)
            y -= _LEAD
        return box

    def frame(self, left: float, bottom: float, right: float, top: float, colour: str) -> None:
        """Draw the background of a part that is repeated, such as a layer."""
        middle = Box((left + right) / 2, (bottom + top) / 2, right - left, top - bottom)
        self._rectangle(middle, colour, 14.0, 0)

    def _rectangle(self, box: Box, colour: str, round_by: float, order: int) -> None:
        from matplotlib.patches import FancyBboxPatch

        shape = f"round,pad=0,rounding_size={round_by}"
        corner = box.x - box.width / 2, box.bottom
        self.axes.add_patch(
            FancyBboxPatch(
                corner, box.width, box.height, boxstyle=shape, facecolor=colour, edgecolor=_LINE,
                linewidth=1.1, zorder=order,
            )
        )  # fmt: skip

    def text(
        self, x: float, y: float, text: str, *, size: float = DETAIL, side: str = "center",
        colour: str = "black",
    ) -> None:  # fmt: skip
        """Write one line of text at (x, y).

        x is the left end, the right end or the centre of the line: `side` is "left", "right" or
        "center". y is the middle of the line's height.
        """
        self.axes.text(x, y, text, size=size, ha=side, va="center", color=colour, zorder=4)

    def arrow(self, *points: Point, head: bool = True) -> None:
        """Draw a line from point to point with round bends; `head` puts an arrowhead at the end."""
        from matplotlib.patches import PathPatch, Polygon
        from matplotlib.path import Path

        route = list(points)
        if head:
            route[-1] = _toward(route[-1], route[-2], _HEAD)
        vertices, codes = [route[0]], [Path.MOVETO]
        for before, turn, after in zip(route, route[1:], route[2:], strict=False):
            vertices += [_toward(turn, before, _BEND), turn, _toward(turn, after, _BEND)]
            codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
        path = Path([*vertices, route[-1]], [*codes, Path.LINETO])
        self.axes.add_patch(
            PathPatch(path, facecolor="none", edgecolor=_LINE, linewidth=1.1, zorder=1)
        )
        if head:
            (x, y), (a, b) = points[-1], route[-1]
            across = (b - y) * 0.55, (x - a) * 0.55
            ends = [(x, y), (a + across[0], b + across[1]), (a - across[0], b - across[1])]
            self.axes.add_patch(Polygon(ends, facecolor=_LINE, edgecolor="none", zorder=3))

    def sum(self, x: float, y: float, radius: float) -> None:
        """Draw a circle with a plus sign in it."""
        self._circle(x, y, radius)
        for across, up in ((radius * 0.6, 0), (0, radius * 0.6)):
            self.axes.plot(
                [x - across, x + across], [y - up, y + up], color=_LINE, linewidth=1.1, zorder=3
            )

    def wave(self, x: float, y: float, radius: float) -> None:
        """Draw a circle with one period of a sine wave in it."""
        import numpy as np

        self._circle(x, y, radius)
        turns = np.linspace(-1, 1, 41)
        wave = radius * 0.5 * np.sin(np.pi * turns)
        self.axes.plot(x + radius * turns, y + wave, color=_LINE, linewidth=1.1, zorder=3)

    def _circle(self, x: float, y: float, radius: float) -> None:
        from matplotlib.patches import Circle

        round_ = Circle((x, y), radius, facecolor="white", edgecolor=_LINE, linewidth=1.1, zorder=2)
        self.axes.add_patch(round_)


def _toward(start: Point, end: Point, by: float) -> Point:
    """The point on the way from `start` to `end` whose distance from `start` is `by`."""
    across, up = end[0] - start[0], end[1] - start[1]
    share = by / (across**2 + up**2) ** 0.5
    return start[0] + share * across, start[1] + share * up
