"""Record the attention weights of every head, by the definition of equation (1).

The faster implementations never have all weights in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from jaxtyping import Float
from torch import Tensor

from regard.attention import attention
from regard.equations import Arithmetic, Mask
from regard.errors import ModelError
from regard.transformer import Transformer
from regard.variants import AdditiveAttention

AttentionKind = Literal["encoder", "decoder", "cross"]
"""Self-attention of the encoder, self-attention of the decoder, and encoder-decoder attention."""
KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)


@dataclass
class Recording:
    """The attention weights of each layer, by its number from 0, in the model's last pass."""

    encoder: dict[int, Float[Tensor, "rows heads source source"]] = field(default_factory=dict)
    decoder: dict[int, Float[Tensor, "rows heads target target"]] = field(default_factory=dict)
    cross: dict[int, Float[Tensor, "rows heads target source"]] = field(default_factory=dict)

    def layers(self, kind: AttentionKind) -> list[Tensor]:
        """The weights of one kind of attention, from the first layer to the last."""
        found: dict[int, Tensor] = getattr(self, kind)
        return [found[layer] for layer in sorted(found)]


@contextmanager
def record_attention(model: Transformer) -> Iterator[Recording]:
    """Within the block, the model attends by the definition, and its attention weights are stored.

        with record_attention(model) as recording:
            model(source, target)
        recording.layers("cross")

    The model's parameters may be in a layout for inference. Raises ModelError for a model with
    additive attention, whose weights equation (1) does not give.
    """
    if any(isinstance(module, AdditiveAttention) for module in model.modules()):
        raise ModelError(
            "model.score = additive: attention can be recorded if the score is scaled or dot"
        )
    recording = Recording()
    modules = [(recording.encoder, i, x.self_attention) for i, x in enumerate(model.encoder)]
    modules += [(recording.decoder, i, x.self_attention) for i, x in enumerate(model.decoder)]
    modules += [(recording.cross, i, x.cross_attention) for i, x in enumerate(model.decoder)]
    before = [module.by for _, _, module in modules]
    try:
        for weights, layer, module in modules:
            module.by = cast(Arithmetic, _Recorder(module.by, weights, layer))
        yield recording
    finally:
        for (_, _, module), by in zip(modules, before, strict=True):
            module.by = by


class _Recorder:
    """Attends by equation (1) and stores the attention weights; `by` computes everything else."""

    def __init__(self, by: Arithmetic, weights: dict[int, Tensor], layer: int):
        self._by, self._weights, self._layer = by, weights, layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._by, name)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0
    ) -> Tensor:
        """Equation (1); a cache may have slots not in use, and a lower precision than the query."""
        keys = mask.allowed.shape[-1]
        key, value = (x[:, :, :keys].to(query.dtype) for x in (key, value))
        output, weights = attention(query, key, value, mask.allowed, dropout)
        self._weights[self._layer] = weights.detach()
        return output
