"""§3.1 Encoder and decoder stacks: Figure 1.

`Transformer.forward` is the figure. `start` and `step` compute the same a token at a time for
search, on an explicit `DecoderState`; nothing is remembered on a module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import KeysValues, MultiHeadAttention, causal_mask, segment_mask
from regard.data.batches import Rows
from regard.layers import AddNorm, Embedding, FeedForward
from regard.recipe import ModelRecipe


def _attention(recipe: ModelRecipe) -> MultiHeadAttention:
    return MultiHeadAttention(
        recipe.d_model, recipe.heads, recipe.d_k, recipe.d_v, recipe.attention_dropout
    )


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network; each with Add & Norm."""

    def __init__(self, recipe: ModelRecipe):
        super().__init__()
        self.self_attention = _attention(recipe)
        self.add_norm_1 = AddNorm(recipe.d_model, recipe.dropout)
        self.feed_forward = FeedForward(recipe.d_model, recipe.d_ff, recipe.relu_dropout)
        self.add_norm_2 = AddNorm(recipe.d_model, recipe.dropout)

    def forward(
        self, x: Float[Tensor, "rows source d"], mask: Bool[Tensor, "rows 1 source source"]
    ) -> Float[Tensor, "rows source d"]:
        """The left block of Figure 1."""
        x = self.add_norm_1(x, self.self_attention(x, x, mask))
        return self.add_norm_2(x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, feed-forward network."""

    def __init__(self, recipe: ModelRecipe):
        super().__init__()
        self.self_attention = _attention(recipe)
        self.add_norm_1 = AddNorm(recipe.d_model, recipe.dropout)
        self.cross_attention = _attention(recipe)
        self.add_norm_2 = AddNorm(recipe.d_model, recipe.dropout)
        self.feed_forward = FeedForward(recipe.d_model, recipe.d_ff, recipe.relu_dropout)
        self.add_norm_3 = AddNorm(recipe.d_model, recipe.dropout)

    def forward(
        self,
        y: Float[Tensor, "rows target d"],
        self_mask: Bool[Tensor, "rows 1 target target"],
        memory: Float[Tensor, "rows source d"],
        cross_mask: Bool[Tensor, "rows 1 target source"],
    ) -> Float[Tensor, "rows target d"]:
        """The right block of Figure 1."""
        y = self.add_norm_1(y, self.self_attention(y, y, self_mask))
        y = self.add_norm_2(y, self.cross_attention(y, memory, cross_mask))
        return self.add_norm_3(y, self.feed_forward(y))

    def step(
        self,
        y: Float[Tensor, "rows 1 d"],
        past: KeysValues,
        memory: KeysValues,
        memory_mask: Bool[Tensor, "sentences 1 1 source"],
    ) -> tuple[Float[Tensor, "rows 1 d"], KeysValues]:
        """One position: attend to the past and itself; returns the longer past too."""
        new = self.self_attention.keys_values(y)
        past = KeysValues(
            torch.cat([past.keys, new.keys], 2), torch.cat([past.values, new.values], 2)
        )
        everything = torch.ones(1, 1, 1, past.keys.shape[2], dtype=torch.bool, device=y.device)
        y = self.add_norm_1(y, self.self_attention.attend(y, past, everything))
        # The beams of a sentence are so many queries to one memory, which is never copied:
        # [rows, 1, d] -> [sentences, beams, d] and back
        beams = y.view(len(memory.keys), -1, y.shape[-1])
        crossed = self.cross_attention.attend(beams, memory, memory_mask)
        y = self.add_norm_2(y, crossed.view_as(y))
        return self.add_norm_3(y, self.feed_forward(y)), past


@dataclass(frozen=True)
class DecoderState:
    """Where decoding stands: a row is one hypothesis, and each sentence has equally many rows."""

    past: tuple[KeysValues, ...]
    """By layer: keys and values of the target so far, [rows, heads, length, d]."""
    memory: tuple[KeysValues, ...]
    """By layer: keys and values of the encoded source, [sentences, heads, source, d]."""
    memory_mask: Bool[Tensor, "sentences 1 1 source"]
    """True where the source is no padding."""

    @property
    def length(self) -> int:
        """Tokens decoded so far, <s> included."""
        return self.past[0].keys.shape[2]

    def select(self, rows: Int[Tensor, "sentences beams"]) -> DecoderState:
        """Keep these rows, in this order; the rows named together are of one sentence.

        Sentences may leave, but those that stay keep their order.
        """
        beams = len(self.past[0].keys) // len(self.memory_mask)
        flat = rows.flatten()
        state = replace(
            self, past=tuple(KeysValues(*(kv.index_select(0, flat) for kv in p)) for p in self.past)
        )
        if len(rows) == len(self.memory_mask):
            return state
        sentences = rows[:, 0] // beams
        return replace(
            state,
            memory=tuple(
                KeysValues(*(kv.index_select(0, sentences) for kv in m)) for m in self.memory
            ),
            memory_mask=self.memory_mask.index_select(0, sentences),
        )


class Transformer(nn.Module):
    """The model of the paper; `recipe` gives its sizes, `vocabulary` the number of its symbols."""

    def __init__(self, recipe: ModelRecipe, vocabulary: int):
        super().__init__()
        self.embedding = Embedding(recipe, vocabulary)
        self.encoder: Sequence[EncoderLayer] = _stack(
            EncoderLayer(recipe) for _ in range(recipe.layers)
        )
        self.decoder: Sequence[DecoderLayer] = _stack(
            DecoderLayer(recipe) for _ in range(recipe.layers)
        )
        self.apply(_initialise)

    @property
    def parameter_count(self) -> int:
        """Learned numbers; the shared embedding matrix counts once."""
        return sum(p.numel() for p in self.parameters())

    def forward(self, source: Rows, target: Rows) -> Float[Tensor, "rows target vocabulary"]:
        """Figure 1 up to the softmax: logits of each next token, given those before it."""
        return self.embedding.logits(self.decode(target, self.encode(source), source))

    def encode(self, source: Rows) -> Float[Tensor, "rows source d_model"]:
        """The encoder stack."""
        x = self.embedding(source.ids, source.positions, source.ids.shape[1])
        mask = segment_mask(source.segments, source.segments)
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def decode(
        self, target: Rows, memory: Float[Tensor, "rows source d_model"], source: Rows
    ) -> Float[Tensor, "rows target d_model"]:
        """The decoder stack; the target is shifted right and begins with <s>."""
        y = self.embedding(target.ids, target.positions, target.ids.shape[1])
        self_mask = segment_mask(target.segments, target.segments)
        self_mask = self_mask & causal_mask(target.ids.shape[1], y.device)
        cross_mask = segment_mask(target.segments, source.segments)
        for layer in self.decoder:
            y = layer(y, self_mask, memory, cross_mask)
        return y

    def start(self, source: Rows) -> DecoderState:
        """Encode sentences, one a row, and project their keys and values for every layer."""
        memory = self.encode(source)
        projected = tuple(layer.cross_attention.keys_values(memory) for layer in self.decoder)
        past = tuple(KeysValues(m.keys[:, :, :0], m.values[:, :, :0]) for m in projected)
        return DecoderState(past, projected, (source.segments != 0)[:, None, None, :])

    def step(
        self, tokens: Int[Tensor, " rows"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows vocabulary"], DecoderState]:
        """Logits of the next token after `tokens`, the last of each row, and the state after it."""
        positions = torch.full_like(tokens, state.length)[:, None]
        y = self.embedding(tokens[:, None], positions, state.length + 1)
        past = []
        for layer, before, memory in zip(self.decoder, state.past, state.memory, strict=True):
            y, after = layer.step(y, before, memory, state.memory_mask)
            past.append(after)
        return self.embedding.logits(y[:, 0]), replace(state, past=tuple(past))


def _stack(layers: Iterable[nn.Module]) -> Any:
    """A ModuleList; typed loosely, for it cannot say what modules it holds."""
    return nn.ModuleList(layers)


def _initialise(module: nn.Module) -> None:
    """Glorot uniform for projections; embeddings normal with deviation d_model^-0.5."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, Embedding):
        nn.init.normal_(module.tokens.weight, std=module.tokens.embedding_dim**-0.5)
        if module.learned:
            nn.init.normal_(module.positions, std=0.5**0.5)  # as large as the sinusoids
