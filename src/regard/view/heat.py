"""A heat map in the terminal: a row is what attends, a column what is attended to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len, set_cell_size

from regard.view.look import NAMES, Look
from regard.view.recording import Kind

SHADES = " ·░▒▓█"
"""From nothing to all, in steps of a fifth: a dot is something at all."""
TALLEST = 10
"""Characters of the words over the columns."""


def heat(look: Look, kind: Kind, layer: int, heads: Sequence[int]) -> str:
    """The mean of some heads of a layer, and of each row where most of it goes."""
    weights = look.weights[kind][layer, list(heads)].mean(0)
    queries, keys = look.queries(kind), look.keys(kind)
    widest = max(map(cell_len, queries))
    height = min(TALLEST, max(map(len, keys)))
    above = [key[:height].rjust(height) for key in keys]
    chosen = ", ".join(str(head + 1) for head in heads)
    title = f"{NAMES[kind]}, layer {layer + 1}, {'head' if len(heads) == 1 else 'heads'} {chosen}"
    lines = [title, ""]
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
