"""Texts of the boxes of Figure 1: a model's modules, their sizes and numbers of parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch import nn

from regard.attention import MultiHeadAttention
from regard.layers import AddNorm, Embedding, FeedForward
from regard.transformer import Transformer
from regard.variants import Add, HalvesEmbedding, NormOnly, SmoothFeedForward
from regard.word_positions import WordEmbedding


class Label(NamedTuple):
    """The title and the lines of a box, which describe modules of the model."""

    title: str
    lines: tuple[str, ...]


class Sublayer(NamedTuple):
    """A sub-layer of a layer, and the boxes below and above it."""

    module: nn.Module
    name: str
    """The sub-layer's name in the layer."""
    label: Label
    norm_below: Label | None
    """The box of the LayerNorm before the sub-layer; None in a post-norm model."""
    norm_above: Label | None
    """The box "Add & Norm" after the sub-layer, or "Norm" if there is no residual connection; None
    in a pre-norm model."""
    residual: bool


def counted(module: nn.Module) -> str:
    """The number of a module's parameters, such as "1,024 parameters"."""
    return f"{sum(p.numel() for p in module.parameters()):,} parameters"


def own_parameters(sublayer: nn.Module) -> int:
    """The number of a sub-layer's parameters, without those of the LayerNorm before it."""
    named = sublayer.named_parameters()
    return sum(p.numel() for name, p in named if not name.startswith("norm."))


def numbered(stack: str, layers: Sequence[nn.Module]) -> str:
    """The name of a stack with the numbers of its layers, such as encoder.0…5."""
    return f"{stack}.0" if len(layers) == 1 else f"{stack}.0…{len(layers) - 1}"


def sublayers(stack: str, layers: Sequence[nn.Module], causal: bool) -> Iterator[Sublayer]:
    """Each sub-layer of a layer, from the bottom up, with its boxes in Figure 1.

    A box gives the sizes in one layer; its first line names the sub-layer in all `layers`, such as
    encoder.0…5.self_attention. `causal` says whether the decoder's self-attention is masked; it is
    ignored for the encoder. Raises TypeError for a module that Figure 1 does not have.
    """
    which = numbered(stack, layers)
    modules = list(layers[0].named_children())
    for (name, module), (above, added) in zip(modules[::2], modules[1::2], strict=False):
        title, said = _about(module, causal and (stack, name) == ("decoder", "self_attention"))
        count = f"{own_parameters(module):,} parameters"
        lines = f"{which}.{name}: {type(module).__name__}", said, count
        below = _norm("Norm", f"{which}.{name}.norm", getattr(module, "norm", None))
        residual, own = _addition(added)
        title_above = "Add & Norm" if residual else "Norm"
        label = _norm(title_above, f"{which}.{above}.norm", own)
        yield Sublayer(module, name, Label(title, lines), below, label, residual)
    if len(modules) % 2:
        raise TypeError(f"Figure 1 has no {type(modules[-1][1]).__name__}")


def _about(module: nn.Module, masked: bool) -> tuple[str, str]:
    """The title of a sub-layer's box, and a line about its sizes."""
    match module:
        case MultiHeadAttention():
            heads = "1 head" if module.heads == 1 else f"{module.heads} heads"
            widths = f"d_k = {module.d_k}, d_v = {module.d_v}"
            said = f"{heads}, {widths}, d_model = {module.W_q.in_features:,}"
            return "Masked Multi-Head Attention" if masked else "Multi-Head Attention", said
        case FeedForward():
            inner, outer = module.W_1, module.W_2
            widths = f"{inner.in_features:,} → d_ff = {inner.out_features:,} → "
            name = "ReLU"
            if isinstance(module, SmoothFeedForward):
                name = "GELU" if module.activation is nn.functional.gelu else "swish"
            return "Feed Forward", f"{widths}{outer.out_features:,}, {name}"
    raise TypeError(f"Figure 1 has no {type(module).__name__}")


def _addition(module: nn.Module) -> tuple[bool, nn.LayerNorm | None]:
    """Whether a sub-layer has a residual connection, and the LayerNorm after the sub-layer or None.

    `module` is the module that follows the sub-layer.
    """
    match module:
        case AddNorm():
            return not isinstance(module, NormOnly), module.norm
        case Add():
            return module.residual, None
    raise TypeError(f"Figure 1 has no {type(module).__name__}")


def _norm(title: str, name: str, module: nn.Module | None) -> Label | None:
    """The label of a LayerNorm's box; None if `module` is not a LayerNorm."""
    if not isinstance(module, nn.LayerNorm):
        return None
    return Label(title, (f"{name}: {type(module).__name__}", counted(module)))


def embedding_parts(model: Transformer) -> dict[str, Label]:
    """The labels of embeddings, positions, output layer and softmax.

    The keys are "source", "target", "linear", "softmax", "source positions" and "target positions".
    If the embeddings and the output layer share a matrix, as in the paper, the matrix is counted
    only in the first of their labels. The other labels refer to the first one.
    """
    source, target, output = model.embedding, model.target_side, model.output_matrix
    homes = {id(source.tokens): ("embedding.tokens", "Input Embedding")}
    homes.setdefault(id(target.tokens), ("target_embedding.tokens", "Output Embedding"))
    homes.setdefault(id(output), ("output.tokens", "Linear"))

    def matrix(title: str, module: nn.Embedding, use: str) -> Label:
        name, home = homes[id(module)]
        rows, width = module.weight.shape
        if home != title:
            return Label(title, (f"{name}{use}", f"shared, counted at {home}"))
        kind = f": {type(module).__name__}" if title == "Input Embedding" else ""
        return Label(title, (f"{name}{kind}{use}", f"{rows:,} × {width:,}: {counted(module)}"))

    rows, width = output.weight.shape
    scaled = f", times √{width:,}" if source.scale != 1 else ""
    linear = matrix("Linear", output, f", transposed: {width:,} → {rows:,}")
    if model.output_bias is not None:
        linear = Label("Linear", (*linear.lines, f"output_bias: {rows:,} parameters"))
    own = "" if target is source else "target_embedding"
    return {
        "source": matrix("Input Embedding", source.tokens, scaled),
        "target": matrix("Output Embedding", target.tokens, scaled),
        "linear": linear,
        "softmax": Label("Softmax", (f"over {rows:,} sub-words",)),
        "source positions": _positions(source, "embedding"),
        "target positions": _positions(target, own),
    }


def _positions(embedding: Embedding, name: str) -> Label:
    """The label of an embedding's positions.

    `name` is the embedding's name, or "" for a target that shares the source's embedding.
    """
    title, width = "Positional Encoding", embedding.tokens.embedding_dim
    if embedding.learned:
        rows, count = embedding.positions.shape[0], embedding.positions.numel()
        size = f"{rows:,} × {width:,}: {count:,} parameters"
        again = "the same table as left"
        return Label(title, (f"{name or 'embedding'}.positions: learned", size if name else again))
    halves = isinstance(embedding, HalvesEmbedding)
    kind = "sines, then cosines," if halves else "sines and cosines"
    words = "positions of words; " if isinstance(embedding, WordEmbedding) else ""
    return Label(title, (f"{kind} of width {width:,}", f"{words}no parameters"))


def part_counts(model: Transformer) -> list[tuple[str, int]]:
    """The name and parameter count of each part that has parameters; the whole model is last."""
    children = model.named_children()
    parts = {name: sum(p.numel() for p in its.parameters()) for name, its in children}
    if model.output_bias is not None:
        parts["output_bias"] = model.output_bias.numel()
    parts[type(model).__name__] = model.parameter_count
    return [(name, count) for name, count in parts.items() if count]
