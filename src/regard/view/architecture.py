"""Figure 1, drawn from a model's own modules: their names, their shapes, what they count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch import nn

from regard.attention import MultiHeadAttention
from regard.layers import AddNorm, Embedding, FeedForward
from regard.transformer import Transformer
from regard.variants import NormOnly
from regard.view.drawing import GREY, TITLE, Box, Drawing, plotting, saved

PINK, ORANGE, YELLOW = "#fce0e1", "#ffe2bb", "#f2f4c1"
BLUE, LILAC, GREEN, PALE = "#c2e8f7", "#dcdfef", "#cbe7d3", "#f3f3f5"
FIGURE_1 = (1010.0, 942.0)
"""The width and height of its sheet, in points."""
_ENCODER, _DECODER = 315.0, 695.0
"""The x of the middle of either stack."""
_BOX, _FRAME = 250.0, 165.0
"""The width of a box, and half the width of a stack."""
_TALL, _LOW, _JOIN = 68.0, 50.0, 10.0
_AROUND = 20.0
"""How far from its boxes a residual connection passes."""


class Label(NamedTuple):
    """A box's title and lines, about modules of the model."""

    title: str
    lines: tuple[str, ...]


Shown = tuple[nn.Module, str, Label]
"""A module of a layer, its name there, and its box."""


def counted(module: nn.Module) -> str:
    """The number of a module's parameters, in words."""
    return f"{sum(p.numel() for p in module.parameters()):,} parameters"


def numbered(stack: str, layers: Sequence[nn.Module]) -> str:
    """The name of a stack with the numbers of its layers, as `named_modules` has them."""
    return f"{stack}.0" if len(layers) == 1 else f"{stack}.0…{len(layers) - 1}"


def layer_parts(stack: str, layers: Sequence[nn.Module], causal: bool) -> Iterator[Shown]:
    """Each module of a layer, from the bottom up: itself, its name, and its box.

    A box is about one layer; its name says which layers have such a module. `causal`: the decoder's
    self-attention is masked. Raises TypeError for a module that Figure 1 does not have.
    """
    which = numbered(stack, layers)
    for name, module in layers[0].named_children():
        lines = [f"{which}.{name}: {type(module).__name__}"]
        match module:
            case MultiHeadAttention():
                masked = causal and (stack, name) == ("decoder", "self_attention")
                title = "Masked Multi-Head Attention" if masked else "Multi-Head Attention"
                widths = f"d_k = {module.d_k}, d_v = {module.d_v}"
                heads = "1 head" if module.heads == 1 else f"{module.heads} heads"
                lines.append(f"{heads}, {widths}, d_model = {module.W_q.in_features:,}")
            case FeedForward():
                title, (inner, outer) = "Feed Forward", (module.W_1, module.W_2)
                lines.append(
                    f"{inner.in_features:,} → d_ff = {inner.out_features:,} → "
                    f"{outer.out_features:,}, ReLU"
                )
            case AddNorm():
                title = "Norm" if isinstance(module, NormOnly) else "Add & Norm"
                lines[0] = f"{which}.{name}.norm: {type(module.norm).__name__}"
            case _:
                raise TypeError(f"Figure 1 has no {type(module).__name__}")
        yield module, name, Label(title, (*lines, counted(module)))


def embedding_parts(embedding: Embedding) -> dict[str, Label]:
    """The boxes of the one module that embeds, adds positions and gives logits."""
    rows, width = embedding.tokens.weight.shape
    size, kind = f"{rows:,} × {width:,}", type(embedding.tokens).__name__
    shared = "shared, counted at Input Embedding"
    parts = {
        "source": Label(
            "Input Embedding",
            (
                f"embedding.tokens: {kind}, times √{width:,}",
                f"{size}: {counted(embedding.tokens)}",
            ),
        ),
        "target": Label("Output Embedding", (f"embedding.tokens, times √{width:,}", shared)),
        "linear": Label("Linear", (f"embedding.tokens, transposed: {width:,} → {rows:,}", shared)),
        "softmax": Label("Softmax", (f"over {rows:,} sub-words",)),
    }
    if embedding.learned:
        table = embedding.positions
        lines = (
            "embedding.positions: learned",
            f"{len(table):,} × {width:,}: {table.numel():,} parameters",
        )
        again = "embedding.positions: learned", "the same table as left"
    else:
        lines = again = f"sines and cosines of width {width:,}", "no parameters"
    parts["source positions"] = Label("Positional Encoding", lines)
    parts["target positions"] = Label("Positional Encoding", again)
    return parts


def architecture(model: Transformer, form: str) -> bytes:
    """Figure 1 for this model, as the bytes of an "svg", "png" or "pdf" file.

    Raises MissingExtra without matplotlib.
    """
    with plotting() as sheet:
        drawing = Drawing(sheet, *FIGURE_1)
        draw_architecture(drawing, model)
        return saved(drawing.figure, form)


def draw_architecture(drawing: Drawing, model: Transformer) -> None:
    """Draw Figure 1 on a sheet whose size is FIGURE_1."""
    parts, width = embedding_parts(model.embedding), model.embedding.tokens.embedding_dim
    learned = model.embedding.learned
    labels = "Inputs", "sub-words of the source"
    bottom = _inputs(drawing, _ENCODER, -1, parts, "source", labels, learned)
    labels = "Outputs (shifted right)", "<s>, sub-words of the target"
    _inputs(drawing, _DECODER, 1, parts, "target", labels, learned)
    drawing.text(_ENCODER + 8, bottom - 12, f"source × {width:,}", side="left", colour=GREY)
    drawing.text(_DECODER - 8, bottom - 12, f"target × {width:,}", side="right", colour=GREY)
    encoded = _Stack(drawing, "encoder", model.encoder, _ENCODER, -1, bottom, model.causal)
    top = encoded.draw(None)
    decoded = _Stack(drawing, "decoder", model.decoder, _DECODER, 1, bottom, model.causal)
    end = decoded.draw(top)
    _outputs(drawing, end, parts)
    _sums(drawing, model)


def _inputs(
    drawing: Drawing, x: float, side: int, parts: dict[str, Label], name: str,
    labels: tuple[str, str], learned: bool,
) -> float:  # fmt: skip
    """Embedding and positions below a stack; returns the y where the stack begins."""
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
    """A stack of layers, drawn as one layer with a number in front of it."""

    def __init__(
        self, drawing: Drawing, name: str, layers: Sequence[nn.Module], x: float, side: int,
        bottom: float, causal: bool,
    ):  # fmt: skip
        self.drawing, self.name, self.layers, self.x, self.side = drawing, name, layers, x, side
        self.bottom, self.causal = bottom, causal

    def draw(self, memory: float | None) -> float:
        """Draw it, with arrows from the encoder's output at height `memory`; returns its top."""
        y = self.bottom
        modules = list(layer_parts(self.name, self.layers, self.causal))
        for sublayer, norm in zip(modules[::2], modules[1::2], strict=True):
            crosses = sublayer[1] == "cross_attention"
            y = self._sublayer(y, sublayer, norm, memory if crosses else None)
        frame = self.x - _FRAME, self.bottom, self.x + _FRAME, y + 14
        self.drawing.frame(*frame, PALE)
        self._times((self.bottom + y) / 2)
        return y

    def _sublayer(self, y: float, sublayer: Shown, norm: Shown, memory: float | None) -> float:
        """A sub-layer above y with its Add & Norm; returns the top of that."""
        drawing, x, attends = self.drawing, self.x, isinstance(sublayer[0], MultiHeadAttention)
        above = y + 12 + (26 if attends else 20) + (18 if memory else 0)
        box = drawing.box(
            Box(x, above + _TALL / 2, _BOX, _TALL), ORANGE if attends else BLUE, *sublayer[2]
        )
        added = drawing.box(Box(x, box.top + _JOIN + _LOW / 2, _BOX, _LOW), YELLOW, *norm[2])
        if not isinstance(norm[0], NormOnly):
            around = x + self.side * (_BOX / 2 + _AROUND)
            drawing.arrow((x, y + 12), (around, y + 12), (around, added.y), added.side(self.side))
        drawing.arrow((x, box.top), (x, added.bottom))
        if memory:
            self._from_encoder(memory, y, box)
        else:
            drawing.arrow((x, y), (x, box.bottom))
            for way in (-1, 1) if attends else ():
                aside = x + way * _BOX / 3.2
                drawing.arrow((x, y + 22), (aside, y + 22), (aside, box.bottom))
        return added.top

    def _from_encoder(self, memory: float, y: float, box: Box) -> None:
        """Keys and values from the encoder's output, queries from the layer below."""
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
        """The number of layers, beside the stack, and what they count together."""
        drawing, count = self.drawing, len(self.layers)
        x = self.x + self.side * (_FRAME + 14)
        end = "right" if self.side < 0 else "left"
        whole = sum(p.numel() for layer in self.layers for p in layer.parameters())
        drawing.text(x, y + 14, f"{count} ×", size=18, side=end)
        drawing.text(x, y - 6, type(self.layers[0]).__name__, side=end)
        drawing.text(x, y - 18, f"{whole // count:,} each", side=end, colour=GREY)
        drawing.text(x, y - 30, f"{whole:,} in all", side=end, colour=GREY)


def _outputs(drawing: Drawing, y: float, parts: dict[str, Label]) -> None:
    """Linear and softmax above the decoder, whose top is y."""
    x = _DECODER
    linear = drawing.box(Box(x, y + 64, _BOX, 50), LILAC, *parts["linear"])
    softmax = drawing.box(Box(x, linear.top + 40, _BOX, 38), GREEN, *parts["softmax"])
    drawing.arrow((x, y), (x, linear.bottom))
    drawing.arrow((x, linear.top), (x, softmax.bottom))
    drawing.arrow((x, softmax.top), (x, softmax.top + 24))
    drawing.text(x, softmax.top + 34, "Output Probabilities", size=TITLE)


def _sums(drawing: Drawing, model: Transformer) -> None:
    """The numbers of parameters of the whole model, in the upper left corner."""

    def number(module: nn.Module | Sequence[nn.Module]) -> int:
        modules = [module] if isinstance(module, nn.Module) else module
        return sum(p.numel() for one in modules for p in one.parameters())

    rows = [
        ("embedding", number(model.embedding)),
        ("encoder", number(model.encoder)),
        ("decoder", number(model.decoder)),
        (type(model).__name__, model.parameter_count),
    ]
    y = FIGURE_1[1] - 40
    drawing.text(60, y, f"The {type(model).__name__}", size=16, side="left")
    for row, (name, count) in enumerate(rows, 1):
        drawing.text(60, y - 8 - 16 * row, name, size=9, side="left")
        drawing.text(250, y - 8 - 16 * row, f"{count:,}", size=9, side="right")
    drawing.arrow((60, y - 64.5), (250, y - 64.5), head=False)
    drawing.text(60, y - 90, "Numbers are parameters.", side="left", colour=GREY)
