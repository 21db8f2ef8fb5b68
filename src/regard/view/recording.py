"""Record the attention weights of every head.

Scaled dot-product attention is computed by the definition of equation (1), because the faster
implementations do not return the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast, get_args

import torch
from torch import Tensor

from regard.attention import attention
from regard.encoder_decoder import AttentionKind, EncoderDecoder
from regard.equations import Arithmetic, Mask

KINDS: tuple[AttentionKind, ...] = get_args(AttentionKind)
"""The kinds of attention, in the order of Figure 1."""


Recording = dict[AttentionKind, dict[int, Tensor]]
"""The attention weights in the model's last pass, by kind of attention and by layer.

Weights are [rows, heads, queries, keys]; the rows are those of the batch. Layers are numbered from
0, and are in the order in which the model computes them.
"""


@contextmanager
def record_attention(model: EncoderDecoder) -> Iterator[Recording]:
    """A context that yields a `Recording`, in which the model's attention weights are stored.

        with record_attention(model) as recording:
            model(source, target)
        recording["cross"][0]  # the weights of the decoder's first layer

    The model's parameters may be in a layout for inference, as in `regard.arithmetic.layouts`.
    """
    attentions = model.attentions()
    recording: Recording = {kind: {} for kind in attentions}
    modules = [
        (recording[kind], layer, module)
        for kind, layers in attentions.items()
        for layer, module in enumerate(layers)
    ]
    before, within_another = [module.by for _, _, module in modules], "whole_rows" in vars(model)
    model.whole_rows = True
    try:
        for weights, layer, module in modules:
            module.by = cast(Arithmetic, _Recorder(module.by, weights, layer))
        yield recording
    finally:
        for (_, _, module), by in zip(modules, before, strict=True):
            module.by = by
        if not within_another:
            del model.whole_rows  # the model has the value of its class again


class _Recorder:
    """An `Arithmetic` that stores attention weights, and computes equation (1) by its definition.

    The recorder replaces `by`, the `Arithmetic` of one layer's attention. Everything else is still
    computed by `by`.
    """

    def __init__(self, by: Arithmetic, weights: dict[int, Tensor], layer: int):
        self._by, self._weights, self._layer = by, weights, layer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while this object is copied, `_by` may not be set yet
            raise AttributeError(name)
        return getattr(self._by, name)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0
    ) -> Tensor:
        """Compute equation (1), and store its weights; keys and values may come from a cache.

        Unused slots of a cache are left out; keys and values are converted to the query's dtype.
        """
        keys = mask.allowed.shape[-1]
        key, value = (x[:, :, :keys].to(query.dtype) for x in (key, value))
        output, weights = attention(query, key, value, mask.allowed, dropout)
        self._weights[self._layer] = weights.detach()
        return output

    def weigh(self, scores: Tensor, values: Tensor, mask: Mask, dropout: float = 0.0) -> Tensor:
        """Return the sum of the values, weighted by the softmax of the scores; store the weights.

        `by` computes only weighted sums. If the values are the rows of a unit matrix, these sums
        are the weights.
        """
        each = torch.eye(values.shape[2], dtype=values.dtype, device=values.device)
        weights = self._by.weigh(scores, each.expand(*values.shape[:2], -1, -1), mask, dropout)
        self._weights[self._layer] = weights.detach()
        return weights @ values
