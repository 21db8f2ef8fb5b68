"""Figure 1, drawn from a model's own modules: their names, shapes and numbers of parameters."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from regard.attention import MultiHeadAttention
from regard.transformer import Transformer
from regard.view.drawing import GREY, TITLE, Box, Drawing, plotting, saved
from regard.view.parts import Label, Sublayer, counted, embedding_parts, part_counts, sublayers

PINK, ORANGE, YELLOW = "#fce0e1", "#ffe2bb", "#f2f4c1"
BLUE, LILAC, GREEN, PALE = "#c2e8f7", "#dcdfef", "#cbe7d3", "#f3f3f5"
FIGURE_1 = (1010.0, 942.0)
"""The width and height of the sheet of Figure 1, in points."""
_HIGHER = 190.0
"""The sheet is this many points higher if a LayerNorm ends each stack, as in a pre-norm model,
because each LayerNorm then has its own box."""
_ENCODER, _DECODER = 315.0, 695.0
"""The x of the middle of the encoder, and of the decoder, in points."""
_BOX, _FRAME = 250.0, 165.0
"""The width of a box, and half the width of a stack, in points."""
_TALL, _LOW, _JOIN = 68.0, 50.0, 10.0
"""The heights of the boxes of a sub-layer and of a LayerNorm, and the gap above a sub-layer's box,
in points."""
_AROUND = 20.0
"""The distance between a residual connection and the boxes that it passes, in points."""


def architecture(model: Transformer, form: str) -> bytes:
    """Figure 1 for this model, as the bytes of an "svg", "png" or "pdf" file.

    Raises MissingExtra if matplotlib is not installed.
    """
    with plotting() as sheet:
        drawing = Drawing(sheet, *sheet_size(model))
        draw_architecture(drawing, model)
        return saved(drawing.figure, form)


def sheet_size(model: Transformer) -> tuple[float, float]:
    """The width and height of Figure 1: FIGURE_1, or higher if a LayerNorm ends each stack."""
    width, height = FIGURE_1
    return width, height + _HIGHER * isinstance(model.encoder_norm, nn.LayerNorm)


def draw_architecture(drawing: Drawing, model: Transformer) -> None:
    """Draw Figure 1 on a sheet of `sheet_size`."""
    parts, width = embedding_parts(model), model.embedding.tokens.embedding_dim
    learned = model.embedding.learned
    labels = "Inputs", "sub-words of the source"
    bottom = _inputs(drawing, _ENCODER, -1, parts, "source", labels, learned)
    labels = "Outputs (shifted right)", "<s>, sub-words of the target"
    _inputs(drawing, _DECODER, 1, parts, "target", labels, learned)
    drawing.text(_ENCODER + 8, bottom - 12, f"source × {width:,}", side="left", colour=GREY)
    drawing.text(_DECODER - 8, bottom - 12, f"target × {width:,}", side="right", colour=GREY)
    encoded = _Stack(drawing, "encoder", model.encoder, _ENCODER, -1, bottom, model.causal)
    top = _last_norm(drawing, "encoder_norm", model.encoder_norm, _ENCODER, encoded.draw(None))
    decoded = _Stack(drawing, "decoder", model.decoder, _DECODER, 1, bottom, model.causal)
    end = _last_norm(drawing, "decoder_norm", model.decoder_norm, _DECODER, decoded.draw(top))
    _outputs(drawing, end, parts)
    _sums(drawing, model)


def _inputs(
    drawing: Drawing, x: float, side: int, parts: dict[str, Label], name: str,
    labels: tuple[str, str], learned: bool,
) -> float:  # fmt: skip
    """Draw embedding and positions below a stack; return the y where the stack begins."""
    drawing.text(x, 30, labels[0], size=TITLE)
    drawing.text(x, 16, labels[1], colour=GREY)
    box = drawing.box(Box(x, 88, _BOX, 52), PINK, *parts[name])
    drawing.arrow((x, 40), (x, box.bottom))
    y = box.top + 30
    drawing.arrow((x, box.top), (x, y - 10))
    drawing.sum(x, y, 10)
    away = x + side * 90
    if learned:
        drawing.box(Box(away, y, 30, 30), PINK)
    else:
        drawing.wave(away, y, 15)
    drawing.arrow((away - side * 15, y), (x + side * 10, y))
    title, lines = parts[f"{name} positions"]
    end = "right" if side < 0 else "left"
    drawing.text(away + side * 22, y + 13, title, size=TITLE, side=end)
    for row, line in enumerate(lines):
        drawing.text(away + side * 22, y - 1 - 12 * row, line, side=end)
    drawing.arrow((x, y + 10), (x, y + 40), head=False)
    return y + 36


class _Stack:
    """A stack of layers; it is drawn as one layer with the number of layers beside it."""

    def __init__(
        self, drawing: Drawing, name: str, layers: Sequence[nn.Module], x: float, side: int,
        bottom: float, causal: bool,
    ):  # fmt: skip
        self.drawing, self.name, self.layers, self.x, self.side = drawing, name, layers, x, side
        self.bottom, self.causal = bottom, causal

    def draw(self, memory: float | None) -> float:
        """Draw the stack, and return the y where its uppermost sub-layer ends.

        `memory` is the y of the encoder's output, from which arrows lead to the decoder. For the
        encoder itself, give None.
        """
        y = self.bottom
        for sublayer in sublayers(self.name, self.layers, self.causal):
            crosses = sublayer.name == "cross_attention"
            y = self._sublayer(y, sublayer, memory if crosses else None)
        frame = self.x - _FRAME, self.bottom, self.x + _FRAME, y + 14
        self.drawing.frame(*frame, PALE)
        self._times((self.bottom + y) / 2)
        return y

    def _sublayer(self, y: float, sublayer: Sublayer, memory: float | None) -> float:
        """Draw a sub-layer above y, with its norm and sum, and return the y of the topmost edge."""
        drawing, x, attends = self.drawing, self.x, isinstance(sublayer.module, MultiHeadAttention)
        begin = y
        if sublayer.norm_below:
            norm = Box(x, y + 24 + _LOW / 2, _BOX, _LOW)
            drawing.box(norm, YELLOW, *sublayer.norm_below)
            drawing.arrow((x, y), (x, norm.bottom))
            begin = norm.top - 6
        above = begin + 12 + (26 if attends else 20) + (18 if memory else 0)
        box = drawing.box(
            Box(x, above + _TALL / 2, _BOX, _TALL), ORANGE if attends else BLUE, *sublayer.label
        )
        added = self._added(sublayer, box)
        if sublayer.residual:
            around = x + self.side * (_BOX / 2 + _AROUND)
            drawing.arrow((x, y + 12), (around, y + 12), (around, added.y), added.side(self.side))
        drawing.arrow((x, box.top), (x, added.bottom))
        if memory:
            self._from_encoder(memory, begin, box)
        else:
            drawing.arrow((x, begin), (x, box.bottom))
            for way in (-1, 1) if attends else ():
                aside = x + way * _BOX / 3.2
                drawing.arrow((x, begin + 22), (aside, begin + 22), (aside, box.bottom))
        return added.top

    def _added(self, sublayer: Sublayer, box: Box) -> Box:
        """Draw Add & Norm, Norm, a sum or a line above a sub-layer's box.

        Returns the rectangle of the drawn symbol.
        """
        if sublayer.norm_above:
            added = Box(self.x, box.top + _JOIN + _LOW / 2, _BOX, _LOW)
            return self.drawing.box(added, YELLOW, *sublayer.norm_above)
        added = Box(self.x, box.top + _JOIN + 10, 20, 20)
        if sublayer.residual:
            self.drawing.sum(added.x, added.y, 10)
        else:
            self.drawing.arrow((self.x, added.bottom), (self.x, added.top), head=False)
        return added

    def _from_encoder(self, memory: float, y: float, box: Box) -> None:
        """Draw arrows: keys and values from the encoder's output, queries from the box below."""
        drawing, middle = self.drawing, (_ENCODER + _DECODER) / 2
        third, enter = _BOX / 3.2, box.bottom - 18
        start = (_ENCODER, memory), (_ENCODER, memory + 36), (middle, memory + 36)
        drawing.arrow(*start, (middle, enter), (self.x, enter), (self.x, box.bottom))
        drawing.arrow(
            (self.x - third - 12, enter), (self.x - third, enter), (self.x - third, box.bottom)
        )
        drawing.arrow(
            (self.x, y), (self.x, y + 22), (self.x + third, y + 22), (self.x + third, box.bottom)
        )

    def _times(self, y: float) -> None:
        """Write the number of layers beside the stack, near the height y.

        Below it, write the layer's class, and how many parameters one layer and all layers have.
        """
        drawing, count = self.drawing, len(self.layers)
        x = self.x + self.side * (_FRAME + 14)
        end = "right" if self.side < 0 else "left"
        whole = sum(p.numel() for layer in self.layers for p in layer.parameters())
        drawing.text(x, y + 14, f"{count} ×", size=18, side=end)
        drawing.text(x, y - 6, type(self.layers[0]).__name__, side=end)
        drawing.text(x, y - 18, f"{whole // count:,} each", side=end, colour=GREY)
        drawing.text(x, y - 30, f"{whole:,} in all", side=end, colour=GREY)


def _last_norm(drawing: Drawing, name: str, module: nn.Module, x: float, y: float) -> float:
    """Draw, above y, the LayerNorm that ends a stack, and return the y of its top.

    If no LayerNorm ends the stack, nothing is drawn, and y is returned.
    """
    if not isinstance(module, nn.LayerNorm):
        return y
    box = Box(x, y + 34 + _LOW / 2, _BOX, _LOW)
    drawing.box(box, YELLOW, "Norm", [f"{name}: {type(module).__name__}", counted(module)])
    drawing.arrow((x, y), (x, box.bottom))
    return box.top


def _outputs(drawing: Drawing, y: float, parts: dict[str, Label]) -> None:
    """Draw the linear layer and the softmax above the decoder; y is the decoder's top."""
    x = _DECODER
    height = 50 + 11 * (len(parts["linear"].lines) - 2)
    linear = drawing.box(Box(x, y + 39 + height / 2, _BOX, height), LILAC, *parts["linear"])
    softmax = drawing.box(Box(x, linear.top + 40, _BOX, 38), GREEN, *parts["softmax"])
    drawing.arrow((x, y), (x, linear.bottom))
    drawing.arrow((x, linear.top), (x, softmax.bottom))
    drawing.arrow((x, softmax.top), (x, softmax.top + 24))
    drawing.text(x, softmax.top + 34, "Output Probabilities", size=TITLE)


def _sums(drawing: Drawing, model: Transformer) -> None:
    """Write how many parameters the model and its parts have, in the upper left corner."""
    y, rows = sheet_size(model)[1] - 40, part_counts(model)
    drawing.text(60, y, f"The {type(model).__name__}", size=16, side="left")
    for row, (name, count) in enumerate(rows, 1):
        drawing.text(60, y - 8 - 16 * row, name, size=9, side="left")
        drawing.text(250, y - 8 - 16 * row, f"{count:,}", size=9, side="right")
    last = y - 16 * len(rows)
    drawing.arrow((60, last - 0.5), (250, last - 0.5), head=False)
    drawing.text(60, last - 26, "Numbers are parameters.", side="left", colour=GREY)
