"""§3.1 Encoder and decoder stacks: Figure 1.

`Transformer.forward` is the figure. `start` and `step` compute the same a token at a time for
search, on an explicit `DecoderState`; nothing is remembered on a module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import KeysValues, MultiHeadAttention, causal_mask, segment_mask
from regard.data.batches import Rows
from regard.kernels.attention import Mask
from regard.kernels.cache import Cache
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
        self, x: Float[Tensor, "rows source d"], mask: Mask
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
        self_mask: Mask,
        memory: Float[Tensor, "rows source d"],
        cross_mask: Mask,
    ) -> Float[Tensor, "rows target d"]:
        """The right block of Figure 1."""
        y = self.add_norm_1(y, self.self_attention(y, y, self_mask))
        y = self.add_norm_2(y, self.cross_attention(y, memory, cross_mask))
        return self.add_norm_3(y, self.feed_forward(y))

    def step(
        self,
        y: Float[Tensor, "sentences beams d"],
        past: Cache,
        ancestry: Mask,
        memory: Cache,
        memory_mask: Mask,
    ) -> Float[Tensor, "sentences beams d"]:
        """One position of each beam: attend to its past, which this appends itself to."""
        query, new = self.self_attention.project(y)
        past.append(*new)
        y = self.add_norm_1(y, self.self_attention.attend(query, past, ancestry))
        query = self.cross_attention.queries(y)
        y = self.add_norm_2(y, self.cross_attention.attend(query, memory, memory_mask))
        return self.add_norm_3(y, self.feed_forward(y))


COMPACT_FROM = 64  # slots: fewer are not worth the copy


@dataclass(frozen=True)
class DecoderState:
    """Where decoding stands: a row is one hypothesis, and each sentence has equally many rows.

    The beams of a sentence share one store of keys and values, to which every step appends a slot
    for each of them and in which nothing is ever moved; a hypothesis knows its own slots. A step
    uses its state up: a second one from the same state would write to the same slots.
    """

    past: tuple[Cache, ...]
    """By layer: keys and values of the target so far."""
    ancestry: Bool[Tensor, "sentences beams slots"]
    """True where a slot of the past is of this hypothesis."""
    length: int
    """Tokens decoded so far, <s> included."""
    memory: tuple[Cache, ...]
    """By layer: keys and values of the encoded source."""
    memory_mask: Bool[Tensor, "sentences 1 1 source"]
    """True where the source is no padding."""

    def select(self, rows: Int[Tensor, "sentences beams"]) -> DecoderState:
        """Keep these rows, in this order; the rows named together are of one sentence.

        Sentences may leave, but those that stay keep their order.
        """
        sentences, beams, _ = self.ancestry.shape
        ancestry = self.ancestry.flatten(0, 1)[rows]
        if len(rows) == sentences:
            return replace(self, ancestry=ancestry)._compact()
        stay = rows[:, 0] // beams
        return replace(
            self,
            past=tuple(cache.of(stay) for cache in self.past),
            ancestry=ancestry,
            memory=tuple(cache.of(stay) for cache in self.memory),
            memory_mask=self.memory_mask[stay],
        )

    def _compact(self) -> DecoderState:
        """Without the slots of hypotheses that nobody descends from, once they are the most."""
        if self.ancestry.shape[2] < COMPACT_FROM:
            return self
        lives = self.ancestry.any(dim=1)
        most = int(lives.sum(dim=1).amax())
        if 2 * most > lives.shape[1]:
            return self
        slots = lives.byte().sort(dim=1, descending=True, stable=True).indices[:, :most]
        return replace(
            self,
            past=tuple(cache.only(slots) for cache in self.past),
            ancestry=self.ancestry.gather(2, slots[:, None].expand(-1, self.ancestry.shape[1], -1)),
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
        self.half_cache = False
        self.apply(_initialise)

    @property
    def parameter_count(self) -> int:
        """Learned numbers; the shared embedding matrix counts once."""
        return sum(p.numel() for p in self.parameters())

    def pack(self, layer: Callable[[Tensor, Tensor | None], nn.Module], half_cache: bool) -> None:
        """Lay every matrix out as `layer(weight, bias)` does; from then on it can only infer.

        With `half_cache` the keys and values that decoding keeps are bf16, whatever the states are.
        """
        self.half_cache = half_cache
        for module in list(self.modules()):
            if isinstance(module, MultiHeadAttention):
                module.pack(layer)
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(module, name, layer(child.weight, child.bias))
        self.embedding.packed = layer(self.embedding.tokens.weight, None)

    def forward(self, source: Rows, target: Rows) -> Float[Tensor, "rows target vocabulary"]:
        """Figure 1 up to the softmax: logits of each next token, given those before it."""
        return self.embedding.logits(self.decode(target, self.encode(source), source))

    def encode(self, source: Rows) -> Float[Tensor, "rows source d_model"]:
        """The encoder stack."""
        x = self.embedding(source.ids, source.positions, source.ids.shape[1])
        mask = Mask(segment_mask(source.segments, source.segments))
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def decode(
        self, target: Rows, memory: Float[Tensor, "rows source d_model"], source: Rows
    ) -> Float[Tensor, "rows target d_model"]:
        """The decoder stack; the target is shifted right and begins with <s>."""
        y = self.embedding(target.ids, target.positions, target.ids.shape[1])
        same = segment_mask(target.segments, target.segments)
        self_mask = Mask(same & causal_mask(target.ids.shape[1], y.device))
        cross_mask = Mask(segment_mask(target.segments, source.segments))
        for layer in self.decoder:
            y = layer(y, self_mask, memory, cross_mask)
        return y

    def start(self, source: Rows) -> DecoderState:
        """Encode sentences, one a row, and project their keys and values for every layer."""
        encoded = self.encode(source)
        memory = [layer.cross_attention.keys_values(encoded) for layer in self.decoder]
        if self.half_cache:
            memory = [KeysValues(*(kv.bfloat16() for kv in layer)) for layer in memory]
        return DecoderState(
            past=tuple(Cache(keys[:, :, :0], values[:, :, :0]) for keys, values in memory),
            ancestry=source.ids.new_zeros(len(encoded), 1, 0, dtype=torch.bool),
            length=0,
            memory=tuple(Cache(*keys_values) for keys_values in memory),
            memory_mask=(source.segments != 0)[:, None, None, :],
        )

    def step(
        self, tokens: Int[Tensor, " rows"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows vocabulary"], DecoderState]:
        """Logits of the next token after `tokens`, the last of each row, and the state after it."""
        sentences, beams, slots = state.ancestry.shape
        if state.past[0].slots != slots:
            raise ValueError("a step was made from this state already, which used it up")
        positions = torch.full_like(tokens, state.length).view(sentences, beams)
        y = self.embedding(tokens.view(sentences, beams), positions, state.length + 1)
        own = torch.eye(beams, dtype=torch.bool, device=y.device).expand(sentences, -1, -1)
        ancestry = torch.cat([state.ancestry, own], dim=2)
        mask, memory_mask = Mask(ancestry[:, None]), Mask(state.memory_mask)
        for layer, past, memory in zip(self.decoder, state.past, state.memory, strict=True):
            y = layer.step(y, past, mask, memory, memory_mask)
        state = replace(state, ancestry=ancestry, length=state.length + 1)
        return self.embedding.logits(y.flatten(0, 1)), state


def _stack(layers: Iterable[nn.Module]) -> Any:
    """A ModuleList; typed loosely, for it cannot say what modules it holds."""
    return nn.ModuleList(layers)


def _initialise(module: nn.Module) -> None:
    """Glorot uniform for projections; embeddings normal with deviation d_model^-0.5."""
    if next(module.parameters()).is_meta:  # only shapes; and to draw there loads a compiler
        return
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, Embedding):
        nn.init.normal_(module.tokens.weight, std=module.tokens.embedding_dim**-0.5)
        if module.learned:
            nn.init.normal_(module.positions, std=0.5**0.5)  # as large as the sinusoids
