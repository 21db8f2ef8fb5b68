"""Figure 2, drawn from a model's own attention module: one head, and all heads together."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from regard.attention import MultiHeadAttention
from regard.transformer import Transformer
from regard.variants import AdditiveAttention, UnscaledAttention
from regard.view.architecture import GREEN, LILAC, ORANGE, PINK, YELLOW
from regard.view.drawing import GREY, TITLE, Box, Drawing, plotting, saved
from regard.view.parts import counted, numbered, own_parameters

FIGURE_2 = (940.0, 560.0)
"""The width and height of the sheet of Figure 2, in points."""
_ONE, _ALL = 200.0, 640.0
"""The x of the middle of the left half, and of the right half, in points."""
_SHADOW = 6.0
"""In a pile, each box is this many points above, and to the right of, the box in front of it."""
VIOLET = "#dfd5ee"


def multihead(model: Transformer, form: str) -> bytes:
    """Figure 2 for this model, as the bytes of an "svg", "png" or "pdf" file.

    The figure shows the attention of the encoder's first layer; the decoder may have another number
    of heads. Raises MissingExtra if matplotlib is not installed.
    """
    with plotting() as sheet:
        drawing = Drawing(sheet, *FIGURE_2)
        draw_multihead(drawing, model)
        return saved(drawing.figure, form)


def draw_multihead(drawing: Drawing, model: Transformer) -> None:
    """Draw Figure 2 on a sheet whose size is FIGURE_2."""
    found = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    attention = found[0]
    _one_head(drawing, attention)
    _all_heads(drawing, attention)
    counts = [own_parameters(module) for module in found]
    whole, same = f"{sum(counts):,} parameters", len(set(counts)) == 1
    times = f"together {len(found)} × {counts[0]:,} =" if same else f"{len(found)}, together"
    places = [
        f"{numbered('encoder', model.encoder)}.self_attention",
        f"{numbered('decoder', model.decoder)}.self_attention",
        f"{numbered('decoder', model.decoder)}.cross_attention",
    ]
    drawing.text(_ALL, 50, ", ".join(places), colour=GREY)
    drawing.text(_ALL, 36, f"{times} {whole}", colour=GREY)


def _one_head(drawing: Drawing, attention: MultiHeadAttention) -> None:
    """Draw the left half: the attention function, usually equation (1), with one head's sizes."""
    x, d_k, d_v = _ONE, attention.d_k, attention.d_v
    drawing.text(x, FIGURE_2[1] - 24, _name(attention), size=14)
    dropped = f", dropout {attention.dropout:g}" if attention.dropout else ""
    rows = [
        *_scoring(attention),
        ("Mask (opt.)", "padding; if masked, later positions", PINK),
        ("SoftMax", f"over the keys{dropped}", GREEN),
        ("MatMul", f"weights V: queries × {d_v}", LILAC),
    ]
    # The top box is drawn 16 points higher, because the arrow from V enters it from below.
    step, top = 260 / (len(rows) - 1), len(rows) - 1
    boxes = [
        drawing.box(Box(x, 170 + step * row + 16 * (row == top), 200, 38), colour, title, [line])
        for row, (title, line, colour) in enumerate(rows)
    ]
    for below, above in pairwise(boxes):
        drawing.arrow((x, below.top), (x, above.bottom))
    last = boxes[-1]
    drawing.arrow((x, last.top), (x, last.top + 26))
    for name, at, shape in (
        ("Q", x - 60, f"queries × {d_k}"), ("K", x + 60, f"keys × {d_k}"),
        ("V", x + 150, f"keys × {d_v}"),
    ):  # fmt: skip
        drawing.text(at, 106, name, size=TITLE)
        drawing.text(at, 90, shape, colour=GREY)
        if name != "V":
            drawing.arrow((at, 116), (at, boxes[0].bottom))
    turn = (boxes[-2].top + last.bottom) / 2
    drawing.arrow((x + 150, 116), (x + 150, turn), (x + 60, turn), (x + 60, last.bottom))


def _name(attention: MultiHeadAttention) -> str:
    """The name of the attention function that each head computes."""
    match attention:
        case AdditiveAttention():
            return "Additive Attention"
        case UnscaledAttention():
            return "Dot-Product Attention"
    return "Scaled Dot-Product Attention"


def _scoring(attention: MultiHeadAttention) -> list[tuple[str, str, str]]:
    """The title, the line of text and the colour of each box from Q and K up to the scores."""
    d_k = attention.d_k
    product = ("MatMul", "Q Kᵀ: queries × keys", LILAC)
    match attention:
        case AdditiveAttention():
            return [
                ("Add", f"q + k: queries × keys × {d_k:,}", LILAC),
                ("Tanh", f"queries × keys × {d_k:,}", YELLOW),
                ("Linear", "w · tanh(q + k): queries × keys", ORANGE),
            ]
        case UnscaledAttention():
            return [product]
    return [product, ("Scale", f"1 / √{d_k} = {d_k**-0.5:.4g}", YELLOW)]


def _all_heads(drawing: Drawing, attention: MultiHeadAttention) -> None:
    """Draw the right half: projections, heads, their concatenation, and the last projection."""
    x, heads = _ALL, attention.heads
    drawing.text(x, FIGURE_2[1] - 24, "Multi-Head Attention", size=14)
    together = Box(x, 300, 410, 56)
    d_model, inner = attention.W_q.in_features, attention.W_o.in_features
    for name, at, projection, per_head in (
        ("V", x - 140, "W_v", attention.d_v), ("K", x, "W_k", attention.d_k),
        ("Q", x + 140, "W_q", attention.d_k),
    ):  # fmt: skip
        module: nn.Linear = getattr(attention, projection)
        lines = f"{projection}: {d_model:,} → {heads} × {per_head:,}", counted(module)
        box = _pile(drawing, Box(at, 200, 124, 54), LILAC, "Linear", lines, heads)
        drawing.text(at, 106, name, size=TITLE)
        memory = "queries" if name == "Q" else "keys"
        drawing.text(at, 90, f"{memory} × {d_model:,}", colour=GREY)
        drawing.arrow((at, 116), (at, box.bottom))
        drawing.arrow((at, box.top + _lift(heads)), (at, together.bottom))
    each = "1 head" if heads == 1 else f"{heads} heads, each"
    own = "no parameters"
    if isinstance(attention, AdditiveAttention):
        own = f"w: {heads} × {attention.d_k:,}, {attention.w.numel():,} parameters"
    lines = f"{each} as on the left: queries × {attention.d_v:,}", own
    _pile(drawing, together, VIOLET, _name(attention), lines, heads)
    drawing.text(x + 224, 310 + _lift(heads), f"h = {heads}", size=14, side="left")
    line = f"queries × ({heads} × {attention.d_v:,}) = queries × {inner:,}"
    concat = drawing.box(Box(x, 390, 220, 42), YELLOW, "Concat", [line])
    out = f"W_o: {inner:,} → {d_model:,}", counted(attention.W_o)
    linear = drawing.box(Box(x, 464, 220, 54), ORANGE, "Linear", out)
    drawing.arrow((x, together.top + _lift(heads)), (x, concat.bottom))
    drawing.arrow((x, concat.top), (x, linear.bottom))
    drawing.arrow((x, linear.top), (x, linear.top + 22))


def _lift(heads: int) -> float:
    """How much higher a pile is than the box at its front, in points."""
    return _SHADOW * (min(heads, 3) - 1)


def _pile(
    drawing: Drawing, box: Box, colour: str, title: str, lines: tuple[str, ...], heads: int
) -> Box:
    """Draw a pile of boxes, one for each head but at most three; return the box at its front."""
    for sheet in range(min(heads, 3) - 1, 0, -1):
        by = sheet * _SHADOW
        drawing.box(Box(box.x + by, box.y + by, box.width, box.height), colour)
    return drawing.box(box, colour, title, lines)
