"""A tree as a picture in a page: one self-contained SVG element, without script or style sheet.

The drawing takes the colour of the text around it, so that it suits light and dark pages alike.
"""

from html import escape

from regard.trees.layout import NodeKind, Placed, placed, shown
from regard.trees.tree import Tree

FONT_SIZE = 16
CELL = 10
"""Width of a cell in pixels; a character of a fixed-width font of FONT_SIZE takes about 9.6."""
LEVEL = 44
"""Pixels between the base lines of neighbouring levels."""
MARGIN = 8

_UNDER, _OVER = 7, 17
"""Branches begin _UNDER pixels below a base line, and end _OVER pixels above the next base line."""
_STYLES: dict[NodeKind, str] = {"phrase": ' font-weight="600"', "tag": ' opacity="0.8"', "word": ""}


def svg(tree: Tree) -> str:
    """The tree as an SVG element, from the top down.

    Raises DataError for a tree of more than `layout.MOST_LEVELS` levels.
    """
    texts, branches = [], []
    width = height = 0
    for item in placed(tree):
        base = MARGIN + FONT_SIZE + item.level * LEVEL
        x = _middle_of_text(item)
        texts.append(f'<text x="{x}" y="{base}"{_STYLES[item.kind]}>{escape(item.text)}</text>')
        start = f"M{_middle(item.centre)} {base + _UNDER}"
        end = base + LEVEL - _OVER
        branches += [f"{start}L{_middle(child)} {end}" for child in item.below]
        width = max(width, 2 * MARGIN + CELL * (item.left + item.width))
        height = max(height, base + MARGIN)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" fill="currentColor" '
            f'font-family="ui-monospace, monospace" font-size="{FONT_SIZE}" text-anchor="middle">',
            f"<title>{escape(' '.join(map(shown, tree.words())))}</title>",
            f'<path d="{"".join(branches)}" stroke="currentColor" opacity="0.5"/>',
            *texts,
            "</svg>",
        ]
    )


def _middle(cell: int) -> int:
    return MARGIN + CELL * cell + CELL // 2


def _middle_of_text(item: Placed) -> int:
    """The x, in pixels, of the middle of a text.

    It is the x of the text's branches, unless the text was moved aside to fit into its subtree.
    """
    middle = MARGIN + CELL * item.left + CELL * item.width // 2
    return _middle(item.centre) if abs(middle - _middle(item.centre)) < CELL else middle
