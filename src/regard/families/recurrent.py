"""The recurrent family, modelled on GNMT (Wu et al., 2016): LSTM layers with additive attention.

The first layer of the encoder reads a sentence in both directions. In both stacks, layers have
residual connections from the third layer on. The decoder's first layer gives the queries of
additive attention (Bahdanau et al., 2014). Every further layer of the decoder reads two vectors
side by side: the output of attention, and the output of the layer below. The decoder's first layer
reads no output of attention, not even the output at the previous position. For this reason, one
call of a fused LSTM can compute the first layer at all positions of a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.arithmetic.plain import PLAIN
from regard.data.rows import Rows
from regard.encoder_decoder import Attends, AttentionKind, EncoderDecoder
from regard.equations import Computing, Mask
from regard.families.drawing import draw_embeddings, draw_glorot, draw_normal
from regard.families.embedding import TokenEmbedding
from regard.families.stepping import StepState, is_real, reversal
from regard.recipe import ModelRecipe
from regard.recurrence import first_state, lstm_cell
from regard.variants import additive_scores


class Lstm(Computing):
    """A layer of LSTM cells, with dropout on its input.

    A layer that reads embeddings has a dropout of 0, because the embeddings have their own dropout.
    """

    def __init__(self, inputs: int, width: int, dropout: float = 0.0):
        super().__init__()
        self.W_x, self.W_h = nn.Linear(inputs, 4 * width), nn.Linear(width, 4 * width)
        self.dropout = dropout
        for layer in (self.W_x, self.W_h):
            draw_glorot(layer, outputs=width)  # the outputs of one gate, not of all four
        self.W_x.bias.data[width : 2 * width] = 1.0  # forget gates: at first, cells forget little

    def forward(self, x: Float[Tensor, "rows length inputs"]) -> Float[Tensor, "rows length width"]:
        """[rows, length, width] The outputs at all positions; each row is one sentence."""
        return self.by.lstm(self.dropped(x, self.dropout), self.W_x, self.W_h)

    def step(
        self,
        x: Float[Tensor, "*batch inputs"],
        h: Float[Tensor, "*batch width"],
        cell: Float[Tensor, "*batch width"],
    ) -> tuple[Tensor, Tensor]:
        """The output at the next position, and the new state of the cells.

        `x` is the input at this position; `h` and `cell` are the previous output and state.
        """
        return lstm_cell(self.by.linear(x, self.W_x) + self.by.linear(h, self.W_h), cell)


class BothDirections(nn.Module):
    """The encoder's first layer: two LSTMs, of which the second reads each sentence backwards."""

    def __init__(self, width: int):
        super().__init__()
        self.forwards, self.backwards = Lstm(width, width), Lstm(width, width)

    def forward(
        self, x: Float[Tensor, "rows length width"], turned: Int[Tensor, "rows length"]
    ) -> Float[Tensor, "rows length both"]:
        """The outputs of both LSTMs, side by side; `turned` is the result of `reversal`."""
        index = turned.unsqueeze(-1).expand_as(x)
        back = self.backwards(x.gather(1, index)).gather(1, index)
        return torch.cat([self.forwards(x), back], dim=-1)


class AdditiveLookup(Computing):
    """Additive attention of a query q to the encoder output m: softmax(w · tanh(q W_q + m W_k)) m.

    The sum of both products needs only one bias, that of W_q. So the bias of W_k stays 0 and is not
    trained.
    """

    heads = 1

    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.W_q, self.W_k = nn.Linear(width, width), nn.Linear(width, width)
        self.w = nn.Parameter(torch.empty(1, width))
        self.dropout = dropout
        self.W_k.bias.requires_grad_(False)
        draw_normal(self.w, width**-0.5)
        for layer in (self.W_q, self.W_k):
            draw_glorot(layer, outputs=width)

    def keys(self, memory: Tensor) -> Float[Tensor, "rows source width"]:
        """The product of `memory` and W_k, which is computed once for all queries."""
        return self.by.linear(memory, self.W_k)

    def forward(
        self,
        query: Float[Tensor, "rows queries width"],
        keys: Float[Tensor, "rows source width"],
        memory: Float[Tensor, "rows source width"],
        mask: Mask,
    ) -> Float[Tensor, "rows queries width"]:
        """For each query, the mean of the memory, weighted by the attention weights."""
        asked = self.by.linear(query, self.W_q).unsqueeze(1)
        scores = additive_scores(asked, keys.unsqueeze(1), self.w.to(keys.dtype))
        dropout = self.dropout if self.training else 0.0
        return self.by.weigh(scores, memory.unsqueeze(1), mask, dropout).squeeze(1)


class RecurrentModel(EncoderDecoder):
    """A recurrent encoder and decoder in the recipe's sizes; each LSTM is d_model wide."""

    def __init__(self, recipe: ModelRecipe, vocabulary: int, source_vocabulary: int | None = None):
        super().__init__(recipe, vocabulary, source_vocabulary, TokenEmbedding)
        d, dropout = recipe.d_model, recipe.dropout
        above = [Lstm(2 * d if i == 1 else d, d, dropout) for i in range(1, recipe.layers)]
        self.encoder: Any = nn.ModuleList([BothDirections(d), *above])
        self.attention = AdditiveLookup(d, recipe.attention_dropout)
        above = [Lstm(2 * d, d, dropout) for _ in range(1, recipe.decoder_layers)]
        self.decoder: Any = nn.ModuleList([Lstm(d, d), *above])
        draw_embeddings(self)
        self.compute_by(PLAIN)

    def attentions(self) -> Mapping[AttentionKind, Sequence[Attends]]:
        """The only attention: the decoder's first layer attends to the encoder's output."""
        return {"cross": [self.attention]}

    def encode(self, source: Rows) -> Float[Tensor, "rows source d_model"]:
        """The outputs of the encoder's last layer; at padding, they are not defined."""
        x = self.embedding(source.ids, source.positions, source.ids.shape[1])
        first, second, *others = self.encoder
        x = second(first(x, reversal(is_real(source))))
        for layer in others:
            x = x + layer(x)
        return x

    def decode(
        self, target: Rows, memory: Float[Tensor, "rows source d_model"], source: Rows
    ) -> Float[Tensor, "rows target d_model"]:
        """The outputs of the decoder's last layer."""
        mask = self.by.mask_of_segments(target.segments, source.segments)
        first, second, *others = self.decoder
        y = first(self.target_side(target.ids, target.positions, target.ids.shape[1]))
        seen = self.attention(y, self.attention.keys(memory), memory, mask)
        y = second(torch.cat([y, seen], dim=-1))
        for layer in others:
            y = y + layer(torch.cat([y, seen], dim=-1))
        return y

    def start(self, source: Rows) -> StepState:
        """Encode sentences, one per row; return the state before the first step.

        The state also holds the keys of attention.
        """
        memory = self.encode(source)
        shape = len(memory), 1, memory.shape[-1]
        past = [x for _ in self.decoder for x in first_state(memory, *shape)]
        return StepState(tuple(past), (self.attention.keys(memory), memory), is_real(source))

    def step(
        self, tokens: Int[Tensor, " rows"], state: StepState
    ) -> tuple[Float[Tensor, "rows vocabulary"], StepState]:
        """The logits of the next token of each hypothesis, and the state after this step.

        `tokens` has the last token of each hypothesis.
        """
        ids, past, (keys, memory) = tokens.view(state.shape), list(state.past), state.memory
        y = self.target_side(ids, torch.zeros_like(ids), 1)
        mask = self.by.mask(state.real[:, None, None, :])
        seen = y
        for i, layer in enumerate(self.decoder):
            x = torch.cat([y, seen], dim=-1) if i else y
            past[2 * i : 2 * i + 2] = layer.step(x, *past[2 * i : 2 * i + 2])
            y = y + past[2 * i] if i > 1 else past[2 * i]
            if i == 0:
                seen = self.attention(y, keys, memory, mask)
        return self.logits(y.flatten(0, 1)), state.after(past)
