"""Every head's weights, by equation (1) itself: the fast attention never has them as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor

from regard.arithmetic.attention import Mask
from regard.attention import MultiHeadAttention, attention
from regard.transformer import Transformer

AttentionKind = Literal["encoder", "decoder", "cross"]
"""Self-attention of the encoder or the decoder, and encoder-decoder attention."""
KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)


@dataclass
class Recording:
    """The weights of the last pass of each layer, [rows, heads, queries, keys], layer by layer."""

    encoder: dict[int, Float[Tensor, "rows heads source source"]] = field(default_factory=dict)
    decoder: dict[int, Float[Tensor, "rows heads target target"]] = field(default_factory=dict)
    cross: dict[int, Float[Tensor, "rows heads target source"]] = field(default_factory=dict)

    def layers(self, kind: AttentionKind) -> list[Tensor]:
        """The weights of one kind of attention, from the lowest layer up."""
        found: dict[int, Tensor] = getattr(self, kind)
        return [found[layer] for layer in sorted(found)]


@contextmanager
def record_attention(model: Transformer) -> Iterator[Recording]:
    """Within the block the model attends by equation (1), and what it computes is kept.

        with record_attention(model) as recording:
            model(source, target)
        recording.layers("cross")

    The model may be packed; it is the same one after the block.
    """
    recording = Recording()
    modules = [(recording.encoder, i, x.self_attention) for i, x in enumerate(model.encoder)]
    modules += [(recording.decoder, i, x.self_attention) for i, x in enumerate(model.decoder)]
    modules += [(recording.cross, i, x.cross_attention) for i, x in enumerate(model.decoder)]
    try:
        for weights, layer, module in modules:
            _swap(module, partial(_recorded, weights, layer))
        yield recording
    finally:
        for _, _, module in modules:
            vars(module).pop("equation_1", None)


def _swap(module: MultiHeadAttention, equation_1: Callable[..., Tensor]) -> None:
    vars(module)["equation_1"] = equation_1  # in front of the class's own


def _recorded(
    recorded: dict[int, Tensor],
    layer: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask,
    dropout: float,
) -> Tensor:
    """Equation (1); a cache's keys and values may be followed by room, and be of less precision."""
    keys = mask.allowed.shape[-1]
    key, value = (x[:, :, :keys].to(query.dtype) for x in (key, value))
    output, weights = attention(query, key, value, mask.allowed, dropout)
    recorded[layer] = weights.detach()
    return output
