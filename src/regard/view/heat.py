"""A heat map in the terminal: one row per query, one column per key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len, set_cell_size

from regard.encoder_decoder import AttentionKind
from regard.view.look import Look, heading

SHADES = " ·░▒▓█"
"""Shades for weights from 0 to 1: blank below 0.02, a dot below 0.2, then a new shade every 0.2."""
TALLEST = 10
"""Words above the columns are cut to this many characters."""


def heat(look: Look, kind: AttentionKind, layer: int, heads: Sequence[int]) -> str:
    """The heat map of the mean weights of some heads of a layer, as text.

    Each row ends with the key that has the largest weight, and with this weight in per cent. Layers
    and heads are numbered from 0.
    """
    weights = look.weights[kind][layer, list(heads)].mean(0)
    queries, keys = look.queries(kind), look.keys(kind)
    widest = max(map(cell_len, queries))
    height = min(TALLEST, max(map(len, keys)))
    above = [key[:height].rjust(height) for key in keys]
    lines = [heading(kind, layer, heads), ""]
    lines += [
        " " * (widest + 1) + "".join(set_cell_size(word[line], 2) for word in above)
        for line in range(height)
    ]
    for query, row in zip(queries, weights, strict=True):
        cells = "".join(2 * _shade(float(weight)) for weight in row)
        most = int(np.argmax(row))
        label = " " * (widest - cell_len(query)) + query
        lines.append(f"{label} {cells} {keys[most]} {100 * row[most]:.0f} %")
    return "\n".join(line.rstrip() for line in lines)


def _shade(weight: float) -> str:
    if weight < 0.02:
        return SHADES[0]
    return SHADES[min(len(SHADES) - 1, 1 + int(5 * weight))]
