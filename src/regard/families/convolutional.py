"""The convolutional family of models, modelled on ConvS2S (Gehring et al., 2017).

Layers are convolutions with gated linear units, and every layer of the decoder also has attention.
Residual sums are multiplied by sqrt(0.5), which keeps their variance. Token embeddings begin with a
standard deviation of 0.1. Three things differ from ConvS2S. There is no weight normalisation: it
helped ConvS2S, but ConvS2S was trained without Adam. Gradients of the encoder are not scaled down,
because Adam would undo the scaling. Every layer is as wide as the embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.arithmetic.plain import PLAIN
from regard.data.rows import Rows
from regard.encoder_decoder import Attends, AttentionKind, EncoderDecoder
from regard.equations import Computing, Mask
from regard.families.convolution import Convolution
from regard.families.drawing import draw_embeddings, draw_variance
from regard.families.stepping import StepState, is_real
from regard.recipe import ModelRecipe

HALF = 0.5**0.5
"""A sum of two independent terms of equal variance, multiplied by this number, has the variance of
one term."""
EMBEDDED = 0.1
"""Embeddings are multiplied by this number, so that token embeddings begin with this standard
deviation. With larger inputs, gates would change the variance."""

KeysValues = tuple[Tensor, Tensor]
"""The keys and the values of the sources in a batch, each [rows, source, d_model]. The keys are the
encoder's outputs. The values are the sums of keys and source embeddings, times sqrt(0.5)."""


class GatedLayer(Computing):
    """A convolution, with dropout on its input, and a gate: GLU(a, b) = a sigmoid(b).

    The first half of the convolution's outputs is a, and the second half is b.
    """

    def __init__(self, recipe: ModelRecipe, *, causal: bool):
        super().__init__()
        d, self.dropout = recipe.d_model, recipe.dropout
        self.convolution = Convolution(d, 2 * d, recipe.kernel, causal=causal)
        # A gate leaves a quarter of the variance; dropout divides the variance by 1 - dropout.
        draw_variance(self.convolution.W, 4 * (1 - recipe.dropout))


class EncoderConvolution(GatedLayer):
    """An encoder layer: a gated convolution over positions on both sides, and a residual sum."""

    def forward(
        self, x: Float[Tensor, "rows source d"], real: Float[Tensor, "rows source 1"]
    ) -> Float[Tensor, "rows source d"]:
        """The layer's output; `real` is 1 in a sentence and 0 in padding."""
        return (x + F.glu(self.convolution(self.dropped(x, self.dropout) * real))) * HALF


class DecoderConvolution(GatedLayer):
    """A layer of the decoder: a gated convolution over the past, attention, and residual sums."""

    heads = 1

    def __init__(self, recipe: ModelRecipe):
        super().__init__(recipe, causal=True)
        self.attention_dropout = recipe.attention_dropout
        self.W_q, self.W_o = (nn.Linear(recipe.d_model, recipe.d_model) for _ in range(2))
        draw_variance(self.W_q, 1.0)
        draw_variance(self.W_o, 1.0)

    def forward(
        self,
        y: Float[Tensor, "rows target d"],
        embedded: Float[Tensor, "rows target d"],
        memory: KeysValues,
        mask: Mask,
        scale: Float[Tensor, "rows 1 1"],
    ) -> Float[Tensor, "rows target d"]:
        """The layer's output, from its input y.

        `embedded` holds the embeddings of the target, and `memory` the keys and values of the
        source. `mask` tells which source positions a target position may attend to. The method
        `looked_up` explains `scale`.
        """
        convolved = self.convolution(self.dropped(y, self.dropout))
        return self.looked_up(y, convolved, embedded, memory, mask, scale)

    def looked_up(
        self,
        y: Float[Tensor, "rows target d"],
        convolved: Float[Tensor, "rows target both"],
        embedded: Float[Tensor, "rows target d"],
        memory: KeysValues,
        mask: Mask,
        scale: Float[Tensor, "rows 1 1"],
    ) -> Float[Tensor, "rows target d"]:
        """The layer's output, from its input y; `convolved` is the convolution of y, twice as wide.

        Attention gives a mean over the source, and a mean has a smaller variance than one position.
        So the mean is multiplied by `scale`. Then, if all attention weights are equal, the product
        has the variance of a single position.
        """
        h = F.glu(convolved)
        # `attend` divides scores by sqrt(width), and ConvS2S does not. So the query is multiplied
        # by sqrt(width).
        width = y.shape[-1]
        query = (self.by.linear(h, self.W_q) + embedded) * (HALF * width**0.5)
        keys, values = (x.unsqueeze(1) for x in memory)
        dropout = self.attention_dropout if self.training else 0.0
        seen = self.by.attend(query.unsqueeze(1), keys, values, mask, dropout).squeeze(1) * scale
        return (y + (h + self.by.linear(seen, self.W_o)) * HALF) * HALF


class Ends(Computing):
    """The linear layers before the first layer of a stack and after its last layer."""

    def __init__(self, recipe: ModelRecipe):
        super().__init__()
        self.W_in, self.W_out = (nn.Linear(recipe.d_model, recipe.d_model) for _ in range(2))
        draw_variance(self.W_in, 1 - recipe.dropout)
        draw_variance(self.W_out, 1.0)


class ConvolutionalModel(EncoderDecoder):
    """A convolutional encoder and decoder in the recipe's sizes; each layer is d_model wide."""

    def __init__(self, recipe: ModelRecipe, vocabulary: int, source_vocabulary: int | None = None):
        super().__init__(recipe, vocabulary, source_vocabulary)
        layers = [EncoderConvolution(recipe, causal=False) for _ in range(recipe.layers)]
        self.encoder: Any = nn.ModuleList(layers)
        self.decoder: Any = nn.ModuleList(
            DecoderConvolution(recipe) for _ in range(recipe.decoder_layers)
        )
        self.encoder_ends, self.decoder_ends = Ends(recipe), Ends(recipe)
        draw_embeddings(self)
        self.compute_by(PLAIN)

    def attentions(self) -> Mapping[AttentionKind, Sequence[Attends]]:
        """The attention of every layer of the decoder."""
        return {"cross": list(self.decoder)}

    def encode(self, source: Rows) -> KeysValues:
        """The keys and values of the source, for the attention of every decoder layer."""
        embedded = self.embedding(source.ids, source.positions, source.ids.shape[1]) * EMBEDDED
        x, real = self.by.linear(embedded, self.encoder_ends.W_in), is_real(source).unsqueeze(-1)
        for layer in self.encoder:
            x = layer(x, real.to(x.dtype))
        keys = self.by.linear(x, self.encoder_ends.W_out)
        return keys, (keys + embedded) * HALF

    def decode(
        self, target: Rows, memory: KeysValues, source: Rows
    ) -> Float[Tensor, "rows target d_model"]:
        """The outputs of the decoder."""
        mask = self.by.mask_of_segments(target.segments, source.segments)
        embedded = self.target_side(target.ids, target.positions, target.ids.shape[1]) * EMBEDDED
        y = self.by.linear(embedded, self.decoder_ends.W_in)
        scale = _scale(is_real(source), y)
        for layer in self.decoder:
            y = layer(y, embedded, memory, mask, scale)
        return self.by.linear(y, self.decoder_ends.W_out)

    def start(self, source: Rows) -> StepState:
        """Encode sentences, one per row; return the state before the first step."""
        memory = self.encode(source)
        past = tuple(layer.convolution.start(memory[0]) for layer in self.decoder)
        return StepState(past, memory, is_real(source))

    def step(
        self, tokens: Int[Tensor, " rows"], state: StepState
    ) -> tuple[Float[Tensor, "rows vocabulary"], StepState]:
        """The logits of the next token of each hypothesis, and the state after this step.

        `tokens` has the last token of each hypothesis.
        """
        ids = tokens.view(state.shape)
        positions = ids.new_full(ids.shape, state.length)
        embedded = self.target_side(ids, positions, state.length + 1) * EMBEDDED
        mask = self.by.mask(state.real[:, None, None, :])
        y, past = self.by.linear(embedded, self.decoder_ends.W_in), []
        scale = _scale(state.real, y)
        for layer, before in zip(self.decoder, state.past, strict=True):
            convolved, after = layer.convolution.step(y, before)
            y = layer.looked_up(y, convolved, embedded, state.memory, mask, scale)
            past.append(after)
        y = self.by.linear(y, self.decoder_ends.W_out)
        return self.logits(y.flatten(0, 1)), state.after(past)


def _scale(real: Tensor, like: Tensor) -> Float[Tensor, "rows 1 1"]:
    """sqrt(m) for a sentence of m positions; ConvS2S writes this factor as m sqrt(1/m)."""
    return real.sum(1).sqrt().to(like.dtype)[:, None, None]
