"""What a drawing says and where: its texts, and those that leave their box or meet another."""

from itertools import combinations
from xml.etree import ElementTree

from matplotlib.patches import FancyBboxPatch
from matplotlib.transforms import Bbox

from regard.view.drawing import Drawing

SVG = "{http://www.w3.org/2000/svg}"


def written(svg: bytes) -> list[str]:
    """The texts of an SVG, in the order in which they were written."""
    return ["".join(t.itertext()).strip() for t in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def misplaced(drawing: Drawing) -> list[str]:
    """The texts that cross the edge of a box or of the sheet, or that touch another text."""
    drawing.figure.draw_without_rendering()
    texts = {text: text.get_window_extent() for text in drawing.axes.texts}
    drawn = sorted(drawing.axes.patches, key=lambda patch: patch.zorder)
    boxes = [p.get_window_extent() for p in drawn if isinstance(p, FancyBboxPatch)]
    found = []
    for text, at in texts.items():
        around = max((i for i, box in enumerate(boxes) if _contains(box, at)), default=-1)
        # The edge of a box that lies under the text's own box is hidden by that.
        crossed = any(at.overlaps(box) and not _contains(box, at) for box in boxes[around + 1 :])
        if crossed or not _contains(drawing.figure.bbox, at):
            found.append(text.get_text())
    for (one, at), (other, there) in combinations(texts.items(), 2):
        if at.overlaps(there) and _area(at, there) > 4:
            found.append(f"{one.get_text()} / {other.get_text()}")
    return found


def _contains(box: Bbox, text: Bbox) -> bool:
    return box.x0 <= text.x0 and text.x1 <= box.x1 and box.y0 <= text.y0 and text.y1 <= box.y1


def _area(one: Bbox, other: Bbox) -> float:
    both = Bbox.intersection(one, other)
    return both.width * both.height if both else 0.0
