"""The dilated family of models, modelled on ByteNet (Kalchbrenner et al., 2016).

Layers are residual blocks of dilated convolutions, without attention. The decoder is stacked on the
encoder: at each position, the decoder reads the previous token and the encoder's output at this
position ("dynamic unfolding"). A translation may be longer than its source, so the encoder has more
outputs than inputs; `unfolded` gives the number of the outputs.

Three things differ from ByteNet: pieces of words take the place of bytes; the two inputs of the
decoder are added, since embeddings are as wide as the blocks; and no ReLU follows the last layer,
since the logits are products with the embedding matrix (§3.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.arithmetic.plain import PLAIN
from regard.data.rows import Rows
from regard.encoder_decoder import Attends, AttentionKind, EncoderDecoder
from regard.equations import Computing
from regard.families.convolution import Convolution
from regard.families.drawing import draw_embeddings, draw_variance
from regard.families.embedding import TokenEmbedding
from regard.families.stepping import StepState, is_real
from regard.recipe import ModelRecipe

DILATIONS = (1, 2, 4, 8, 16)
"""The dilations of successive blocks; after the block with 16, the next block has 1 again."""


def unfolded(length: Any) -> Any:
    """The number of the encoder's outputs for a source: 1.2 times the source's length, rounded up.

    `length` and the result are both an int, or both a tensor of integers.
    """
    return length + -(-length // 5)


class DilatedBlock(Computing):
    """A residual block: x + Dropout(W_2 ReLU(N(C ReLU(N(W_1 ReLU(N(x))))))).

    N is LayerNorm. C is the convolution, which is half as wide as x.
    """

    def __init__(self, recipe: ModelRecipe, dilation: int, *, causal: bool):
        super().__init__()
        d, inner, self.dropout = recipe.d_model, recipe.d_model // 2, recipe.dropout
        self.norms = nn.ModuleList(nn.LayerNorm(n, eps=1e-6) for n in (d, inner, inner))
        self.W_1, self.W_2 = nn.Linear(d, inner), nn.Linear(inner, d)
        self.convolution = Convolution(inner, inner, recipe.kernel, dilation, causal=causal)
        for layer in (self.W_1, self.convolution.W, self.W_2):
            draw_variance(layer, 2.0)  # a ReLU leaves half of the variance

    def forward(
        self, x: Float[Tensor, "rows length d"], real: Float[Tensor, "rows length 1"] | None = None
    ) -> Float[Tensor, "rows length d"]:
        """The block's output.

        In the encoder, `real` is 1 at the first `unfolded(m)` positions of a sentence of m tokens,
        and 0 at later positions. In the decoder, `real` is None.
        """
        inner = self.narrowed(x)
        return self.widened(x, self.convolution(inner if real is None else inner * real))

    def narrowed(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch inner"]:
        """The inputs of the convolution, half as wide as x."""
        return F.relu(self.norms[1](self.by.linear(F.relu(self.norms[0](x)), self.W_1)))

    def widened(
        self, x: Float[Tensor, "*batch d"], convolved: Float[Tensor, "*batch inner"]
    ) -> Float[Tensor, "*batch d"]:
        """The residual sum of x and the convolution's outputs, widened to the width of x."""
        y = self.by.linear(F.relu(self.norms[2](convolved)), self.W_2)
        return x + self.dropped(y, self.dropout)


class DilatedModel(EncoderDecoder):
    """A dilated encoder and decoder in the recipe's sizes; a layer is a residual block."""

    def __init__(self, recipe: ModelRecipe, vocabulary: int, source_vocabulary: int | None = None):
        super().__init__(recipe, vocabulary, source_vocabulary, TokenEmbedding)

        def stack(count: int, *, causal: bool) -> Any:
            dilations = (DILATIONS[i % len(DILATIONS)] for i in range(count))
            return nn.ModuleList(DilatedBlock(recipe, n, causal=causal) for n in dilations)

        self.encoder: Any = stack(recipe.layers, causal=False)
        self.decoder: Any = stack(recipe.decoder_layers, causal=True)
        self.norm = nn.LayerNorm(recipe.d_model, eps=1e-6)
        self.W_out = nn.Linear(recipe.d_model, recipe.d_model)
        draw_variance(self.W_out, 2.0)
        draw_embeddings(self)
        self.compute_by(PLAIN)

    def attentions(self) -> Mapping[AttentionKind, Sequence[Attends]]:
        """No modules: the decoder reads the encoder position by position, without attention."""
        return {}

    def encode(self, source: Rows) -> Float[Tensor, "rows unfolded d_model"]:
        """The encoder's outputs: `unfolded(m)` for a sentence of m tokens, followed by zeros."""
        reads, writes = is_real(source), _writes(is_real(source))
        x = self.embedding(source.ids, source.positions, source.ids.shape[1])
        x = x * reads.unsqueeze(-1)
        x = F.pad(x, (0, 0, 0, writes.shape[1] - x.shape[1]))
        real = writes.unsqueeze(-1).to(x.dtype)
        for block in self.encoder:
            x = block(x, real)
        return x * real

    def decode(
        self, target: Rows, memory: Float[Tensor, "rows unfolded d_model"], source: Rows
    ) -> Float[Tensor, "rows target d_model"]:
        """The decoder's outputs."""
        length = target.ids.shape[1]
        y = self.target_side(target.ids, target.positions, length)
        y = y + F.pad(memory, (0, 0, 0, max(0, length - memory.shape[1])))[:, :length]
        for block in self.decoder:
            y = block(y)
        return self._last(y)

    def _last(self, y: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        return self.by.linear(F.relu(self.norm(y)), self.W_out)

    def start(self, source: Rows) -> StepState:
        """Encode sentences, one per row; return the state before the first step."""
        memory = self.encode(source)
        past = tuple(block.convolution.start(memory) for block in self.decoder)
        return StepState(past, (memory,), is_real(source))

    def step(
        self, tokens: Int[Tensor, " rows"], state: StepState
    ) -> tuple[Float[Tensor, "rows vocabulary"], StepState]:
        """The logits of the next token of each hypothesis, and the state after this step.

        `tokens` has the last token of each hypothesis.
        """
        ids, (memory,), past = tokens.view(state.shape), state.memory, []
        y = self.target_side(ids, torch.zeros_like(ids), 1)
        if state.length < memory.shape[1]:
            y = y + memory[:, state.length, None]
        for block, before in zip(self.decoder, state.past, strict=True):
            convolved, after = block.convolution.step(block.narrowed(y), before)
            y = block.widened(y, convolved)
            past.append(after)
        return self.logits(self._last(y).flatten(0, 1)), state.after(past)


def _writes(reads: Bool[Tensor, "rows source"]) -> Bool[Tensor, "rows unfolded"]:
    """True at the first `unfolded(m)` positions of each sentence of m tokens.

    `reads` has one sentence in each row, and is True at the tokens of the sentence.
    """
    places = torch.arange(unfolded(reads.shape[1]), device=reads.device)
    return places < unfolded(reads.sum(1, keepdim=True))
