"""Figures 3 to 5: queries above, keys below, and a line for each weight of 0.01 or more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from rich.cells import cell_len

from regard.encoder_decoder import AttentionKind
from regard.view.colours import head_colours
from regard.view.drawing import GREY, plotting, saved
from regard.view.look import Look, entropy, heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Number = Literal[3, 4, 5]
_WORD = 0.3
"""Inches from the middle of a word to the middle of the next word."""
_LETTER, _COLUMN = 0.085, 0.065
"""A word is written vertically. It gets _LETTER inches for each character, or _COLUMN inches for
each column that it takes in a terminal, whichever is more: a Korean syllable takes two columns."""
FAINT = 0.01
"""Weights below this are not drawn."""


def sharpest(
    look: Look, kind: AttentionKind, layer: int, word: int | None, count: int
) -> list[int]:
    """The `count` heads of a layer that have the lowest entropy, the lowest first.

    The entropy of a head is computed from its weights for the query at position `word`. If `word`
    is None, the mean entropy over all queries is used. Layers, heads and positions are numbered
    from 0.
    """
    weights = look.weights[kind][layer : layer + 1]
    rows = weights if word is None else weights[:, :, word : word + 1]
    found: list[int] = np.argsort(entropy(rows)[0], kind="stable").tolist()
    return found[:count]


def figure(
    look: Look,
    number: Number,
    form: str,
    kind: AttentionKind,
    layer: int,
    heads: Sequence[int],
    word: int | None,
) -> bytes:
    """One of the paper's figures for this sentence, as the bytes of an "svg", "png" or "pdf" file.

    Figure 3 shows all `heads` for the query at position `word`. Figure 4 shows the first head for
    all queries and, below, all `heads` for the query at `word`. If `word` is None, all queries are
    shown instead of one. Figure 5 shows each head for all queries, in its own panel. Layers, heads
    and positions are numbered from 0. Raises MissingExtra if matplotlib is not installed.
    """
    panels: list[tuple[Sequence[int], int | None]] = [([head], None) for head in heads]
    if number < 5:
        panels = [*panels[: number - 3], (heads, word)]
    queries, keys = look.queries(kind), look.keys(kind)
    below = max(map(_length, keys))
    width, height = _WORD * (max(len(queries), len(keys)) + 1), 1.6 + below
    height += max(map(_length, queries))
    with plotting() as sheet:
        drawn = sheet(figsize=(max(3.0, width), (height + 0.4) * len(panels)))
        share = 1 / len(panels)
        for place, (some, only) in enumerate(panels):
            bottom = 1 - (place + 1) * share + share * below / height
            axes = drawn.add_axes((0.0, bottom, 1.0, share * 1.35 / (height + 0.4)))
            _panel(axes, look, kind, layer, some, only)
            title = heading(kind, layer, some)
            drawn.text(0.02, 1 - place * share - 0.01, title, va="top", color=GREY)
        return saved(drawn, form)


def _length(word: str) -> float:
    return max(_LETTER * len(word), _COLUMN * cell_len(word))


def _panel(
    axes: Axes, look: Look, kind: AttentionKind, layer: int, heads: Sequence[int], only: int | None
) -> None:
    queries, keys = look.queries(kind), look.keys(kind)
    weights, colours = look.weights[kind][layer], head_colours(look.weights[kind].shape[1])
    axes.set_axis_off()
    axes.set(xlim=(-1, max(len(queries), len(keys))), ylim=(0, 1))
    for place, text in enumerate(queries):
        grey = {"facecolor": "#d5d9de", "edgecolor": "none", "pad": 1.5} if place == only else None
        axes.text(place, 1.02, text, rotation=90, ha="center", va="bottom", bbox=grey)
    for place, text in enumerate(keys):
        axes.text(place, -0.02, text, rotation=90, ha="center", va="top")
    for head in heads:
        for query in range(len(queries)) if only is None else [only]:
            for key, weight in enumerate(weights[head, query]):
                if weight >= FAINT:
                    # Rounding may make a weight larger than 1.
                    ends, alpha = ([query, key], [1, 0]), min(1.0, float(weight))
                    axes.plot(*ends, color=colours[head], alpha=alpha, linewidth=1.8)
