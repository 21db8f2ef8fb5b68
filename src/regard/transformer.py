"""§3.1 Encoder and decoder stacks: Figure 1.

`encode` and `decode` are the two halves of the figure. Search calls `start` and `step` instead:
`start` encodes, and each `step` computes the logits of one more token of the target. A
`DecoderState` holds what the next step needs, such as keys and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.arithmetic.plain import PLAIN
from regard.attention import MultiHeadAttention
from regard.cache import Cache
from regard.data.rows import Rows
from regard.decoder_state import DecoderState
from regard.encoder_decoder import Attends, AttentionKind, EncoderDecoder
from regard.equations import Mask
from regard.layers import Embedding
from regard.neighbourhood import neighbourhood_mask
from regard.recipe import ModelRecipe
from regard.text.tokenizer import EOS
from regard.variants import (
    OutputMatrix,
    add_norm_of,
    attention_of,
    feed_forward_of,
    last_norm_of,
    self_attention_of,
)


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network; each with Add & Norm."""

    def __init__(self, recipe: ModelRecipe):
        super().__init__()
        self.self_attention = self_attention_of(recipe)
        self.add_norm_1 = add_norm_of(recipe)
        self.feed_forward = feed_forward_of(recipe)
        self.add_norm_2 = add_norm_of(recipe)

    def forward(
        self, x: Float[Tensor, "rows source d"], mask: Mask
    ) -> Float[Tensor, "rows source d"]:
        """The left block of Figure 1."""
        x = self.add_norm_1(x, self.self_attention(x, x, mask))
        return self.add_norm_2(x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, FFN; each with Add & Norm."""

    def __init__(self, recipe: ModelRecipe):
        super().__init__()
        self.self_attention = self_attention_of(recipe)
        self.add_norm_1 = add_norm_of(recipe)
        self.cross_attention = attention_of(recipe)
        self.add_norm_2 = add_norm_of(recipe)
        self.feed_forward = feed_forward_of(recipe)
        self.add_norm_3 = add_norm_of(recipe)

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
        places: Int[Tensor, "sentences beams"] | None,
        ancestry: Mask,
        memory: Cache,
        memory_mask: Mask,
    ) -> Float[Tensor, "sentences beams d"]:
        """The layer's output at one more position of each hypothesis.

        `past` has the keys and values of earlier positions, and `memory` those of the encoded
        source; `ancestry` and `memory_mask` are their masks. Keys and values of the new positions
        are written to the slots `places` of `past`; None means new slots after the others.
        """
        query, keys, values = self.self_attention.project(y)
        past.append(keys, values, places)
        attended = self.self_attention.attend(query, past.keys, past.values, ancestry)
        y = self.add_norm_1(y, attended)
        query = self.cross_attention.queries(y)
        attended = self.cross_attention.attend(query, memory.keys, memory.values, memory_mask)
        y = self.add_norm_2(y, attended)
        return self.add_norm_3(y, self.feed_forward(y))


class Transformer(EncoderDecoder):
    """The model of the paper, in the recipe's sizes.

    `vocabulary` is the size of the target's vocabulary, and `source_vocabulary` the size of the
    source's, if the sizes differ. Raises ValueError if the sizes differ and one matrix embeds
    source and target.
    """

    def __init__(self, recipe: ModelRecipe, vocabulary: int, source_vocabulary: int | None = None):
        super().__init__(recipe, vocabulary, source_vocabulary)
        self.causal, self.source_end = recipe.causal, recipe.source_end
        self.neighbourhood = recipe.neighbourhood
        self.encoder: Sequence[EncoderLayer] = _stack(
            EncoderLayer(recipe) for _ in range(recipe.layers)
        )
        self.decoder: Sequence[DecoderLayer] = _stack(
            DecoderLayer(recipe.decoder) for _ in range(recipe.decoder_layers)
        )
        self.encoder_norm, self.decoder_norm = last_norm_of(recipe), last_norm_of(recipe)
        self.apply(_initialise)
        if recipe.initial == "joined":
            self._join_projections()
        self.compute_by(PLAIN)

    def attentions(self) -> Mapping[AttentionKind, Sequence[Attends]]:
        """All attention modules of Figure 1."""
        return {
            "encoder": [layer.self_attention for layer in self.encoder],
            "decoder": [layer.self_attention for layer in self.decoder],
            "cross": [layer.cross_attention for layer in self.decoder],
        }

    def _join_projections(self) -> None:
        """Scale projections that share an input, as if they were initialised as one joint matrix.

        The limit of Glorot's distribution is smaller for the joint matrix. In self-attention, W^Q,
        W^K and W^V share an input; in attention to the encoder's output, only W^K and W^V do.
        """
        for layer in (*self.encoder, *self.decoder):
            own = cast(MultiHeadAttention, layer.self_attention)
            _join(own.W_q, own.W_k, own.W_v)
        for layer in self.decoder:
            _join(layer.cross_attention.W_k, layer.cross_attention.W_v)

    def encode(self, source: Rows) -> Float[Tensor, "rows source d_model"]:
        """The output of the encoder stack."""
        x = self.embedding(source.ids, self.embedding.counted(*source), source.ids.shape[1])
        mask = self._own_mask(self.attended(source), causal=False)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x)

    def attended(self, source: Rows) -> Int[Tensor, "rows source"]:
        """The `segments` of the source; </s> gets 0, like padding, if `source_end` is False."""
        if self.source_end:
            return source.segments
        return source.segments.masked_fill(source.ids == EOS, 0)

    def decode(
        self, target: Rows, memory: Float[Tensor, "rows source d_model"], source: Rows
    ) -> Float[Tensor, "rows target d_model"]:
        """The decoder stack's output; `target` is already shifted right and begins with <s>."""
        y = self.target_side(target.ids, self.target_side.counted(*target), target.ids.shape[1])
        self_mask = self._own_mask(target.segments, causal=self.causal)
        cross_mask = self.by.mask_of_segments(target.segments, self.attended(source))
        for layer in self.decoder:
            y = layer(y, self_mask, memory, cross_mask)
        return self.decoder_norm(y)

    def _own_mask(self, segments: Int[Tensor, "rows length"], *, causal: bool) -> Mask:
        """The mask of self-attention, restricted to the `neighbourhood` if that is not 0 (§4)."""
        if self.neighbourhood:
            reach = self.neighbourhood // 2
            return neighbourhood_mask(
                self.by, segments, reach, causal=causal, whole=self.whole_rows
            )
        return self.by.mask_of_segments(segments, segments, causal=causal)

    def start(self, source: Rows) -> Any:
        """Encode sentences, one per row; return the decoder's state before the first token."""
        if self.few_rows is not None:
            return self.few_rows.start(source)
        encoded = self.encode(source)
        memory = [layer.cross_attention.keys_values(encoded) for layer in self.decoder]
        return DecoderState(
            past=tuple(self.by.cache(keys[:, :, :0], values[:, :, :0]) for keys, values in memory),
            ancestry=source.ids.new_zeros(len(encoded), 1, 0, dtype=torch.bool),
            filled=source.ids.new_zeros(len(encoded)),
            uniform=True,
            length=0,
            memory=tuple(self.by.cache(keys, values) for keys, values in memory),
            memory_mask=(self.attended(source) != 0)[:, None, None, :],
            position=source.ids.new_full((len(encoded), 1), -1),
            reach=self.neighbourhood // 2,
            when=source.ids.new_zeros(len(encoded), 0) if self.neighbourhood else None,
        )

    def step(
        self, tokens: Int[Tensor, " rows"], state: Any
    ) -> tuple[Float[Tensor, "rows vocabulary"], Any]:
        """The logits of the next token of each row, and the new state.

        `tokens` holds the last token of each row. A `state` may be given to `step` only once. The
        second time, ValueError is raised; but the mistake is not noticed after a call of
        `state.with_room`, or if `few_rows` is set.
        """
        if self.few_rows is not None:
            return self.few_rows.step(tokens, state)
        sentences, beams, slots = state.ancestry.shape
        if state.past[0].slots != slots:
            raise ValueError("a step was made from this state already: use the state it returned")
        last = tokens.view(sentences, beams)
        position = self.target_side.position_after(last, state.position)
        y = self.target_side(last, position, state.length + 1)
        places = state.filled.unsqueeze(1) + torch.arange(beams, device=y.device)
        after = state.after(position, places)
        mask, memory_mask = self.by.mask(after.ancestry[:, None]), self.by.mask(state.memory_mask)
        for layer, past, memory in zip(self.decoder, state.past, state.memory, strict=True):
            y = layer.step(y, past, None if state.uniform else places, mask, memory, memory_mask)
        return self.logits(self.decoder_norm(y.flatten(0, 1))), after


def _stack(layers: Iterable[nn.Module]) -> Any:
    """A ModuleList, typed as Any because ModuleList cannot express the type of its modules."""
    return nn.ModuleList(layers)


def _initialise(module: nn.Module) -> None:
    """Initialise linear layers by Glorot uniform, embeddings by N(0, 1 / d_model).

    A separate output matrix is initialised like embeddings. Biases become 0. Learned positions
    are initialised by N(0, 1 / 2).
    """
    # Parameters on the device "meta" have no memory, and drawing them would load a compiler.
    if any(p.is_meta for p in module.parameters()):
        return
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, Embedding | OutputMatrix):
        nn.init.normal_(module.tokens.weight, std=module.tokens.embedding_dim**-0.5)
        if isinstance(module, Embedding) and module.learned:
            nn.init.normal_(module.positions, std=0.5**0.5)  # the root mean square of sinusoids


def _join(*layers: nn.Linear) -> None:
    """Scale the weights of all layers to the Glorot limit of one matrix that joins these layers.

    The weights of each layer were drawn with the limit of the layer's own, smaller matrix.
    """
    outputs = sum(layer.out_features for layer in layers)
    for layer in layers:
        ratio = (layer.in_features + layer.out_features) / (layer.in_features + outputs)
        layer.weight.data *= ratio**0.5
