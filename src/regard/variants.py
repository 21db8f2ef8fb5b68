"""Variants of the modules of §3: readers ask about them, or models of other programs have them.

The fields of a recipe's section [model] choose the modules when a model is built. No recipe of the
paper has a variant. `regard claims` trains models with some of the variants, for comparison.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import MultiHeadAttention
from regard.equations import Computing, Mask
from regard.layers import AddNorm, Embedding, FeedForward, sinusoids
from regard.neighbourhood import restricted
from regard.recipe import ModelRecipe
from regard.word_positions import WordEmbedding


class UnscaledAttention(MultiHeadAttention):
    """§3.2.1 without the scaling: softmax(Q K^T) V."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Mask) -> Tensor:
        """Multiply queries by sqrt(d_k), to cancel the division by sqrt(d_k) in equation (1)."""
        return super().attend(query * self.d_k**0.5, keys, values, mask)


class AdditiveAttention(MultiHeadAttention):
    """§3.2.1's "additive attention": a network with one hidden layer scores each query and key.

    score(q, k) = w · tanh(q + k) in each head (Bahdanau et al. 2014), where q = x W^Q, k = m W^K, x
    is the input of the queries, and m the input of the keys. So the hidden layer's weights are W^Q
    and W^K. Every implementation of the equations computes this score by this definition, and
    stores d_k numbers for each pair of a query and a key.

    One bias is enough for q + k. The bias of the queries is trained, the bias of the keys is not.
    """

    def __init__(self, d_model: int, heads: int, d_k: int, d_v: int, dropout: float = 0.0):
        super().__init__(d_model, heads, d_k, d_v, dropout)
        self.w = nn.Parameter(torch.empty(heads, d_k))
        if not self.w.is_meta:
            nn.init.normal_(self.w, std=d_k**-0.5)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Mask) -> Tensor:
        """Weigh the values by the softmax of the additive scores in each head, then apply W^O."""
        # Keys and values may come from a cache, with unused slots and in another precision.
        used = mask.allowed.shape[-1]
        keys, values = (x[:, :, :used].to(query.dtype) for x in (keys, values))
        scores = additive_scores(query, keys, self.w.to(query.dtype))
        heads = self.by.weigh(scores, values, mask, self.dropout if self.training else 0.0)
        return self.by.linear(heads.transpose(1, 2).flatten(2), self.W_o)


def additive_scores(
    query: Float[Tensor, "rows heads queries d_k"],
    key: Float[Tensor, "rows heads keys d_k"],
    w: Float[Tensor, "heads d_k"],
) -> Float[Tensor, "rows heads queries keys"]:
    """w · tanh(q + k) for each query q and key k of a head."""
    hidden = torch.tanh(query.unsqueeze(3) + key.unsqueeze(2))
    return (hidden @ w[:, None, :, None]).squeeze(-1)


class NormOnly(AddNorm):
    """§3.1 without the residual connection: LayerNorm(Dropout(Sublayer(x)))."""

    def forward(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """Add & Norm with 0 in the place of x."""
        return super().forward(torch.zeros_like(x), sublayer)


class PreNormAttention(MultiHeadAttention):
    """Pre-norm: LayerNorm(x) gives the queries and, in self-attention, also keys and values."""

    def __init__(self, *sizes: Any, epsilon: float):
        super().__init__(*sizes)
        self.norm = nn.LayerNorm(self.W_q.in_features, eps=epsilon)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projections of LayerNorm(x) to queries, keys and values of self-attention."""
        return super().project(self.norm(x))

    def queries(self, x: Tensor) -> Tensor:
        """The queries LayerNorm(x) W_q, for attention to the encoder's output."""
        return super().queries(self.norm(x))


class PreNormUnscaledAttention(PreNormAttention, UnscaledAttention):
    """Pre-norm attention without the scaling of §3.2.1."""


class PreNormAdditiveAttention(PreNormAttention, AdditiveAttention):
    """Pre-norm attention with additive scores."""


class SmoothFeedForward(FeedForward):
    """§3.3 with a smooth function, which the recipe names, in place of max(0, x)."""

    def __init__(self, d_model: int, d_ff: int, dropout: float, activation: str):
        super().__init__(d_model, d_ff, dropout)
        functions: dict[str, Callable[[Tensor], Tensor]] = {"swish": F.silu, "gelu": F.gelu}
        self.activation = functions[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Equation (2) with the smooth function, and dropout after it."""
        inner = self.activation(self.by.linear(x, self.W_1))
        inner = self.dropped(inner, self.relu_dropout)
        return self.by.linear(inner, self.W_2)


class PreNormFeedForward(FeedForward):
    """Pre-norm: FFN(LayerNorm(x))."""

    def __init__(self, *sizes: Any, epsilon: float):
        super().__init__(*sizes)
        self.norm = nn.LayerNorm(self.W_1.in_features, eps=epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """Equation (2) with LayerNorm(x) in the place of x."""
        return super().forward(self.norm(x))


class PreNormSmoothFeedForward(PreNormFeedForward, SmoothFeedForward):
    """Pre-norm, with a smooth function in place of max(0, x): FFN(LayerNorm(x))."""


class Add(Computing):
    """Pre-norm: x + Dropout(Sublayer(x)), without LayerNorm; without x if `residual` is False."""

    def __init__(self, dropout: float, residual: bool):
        super().__init__()
        self.dropout, self.residual = dropout, residual

    def forward(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """Return x + Dropout(`sublayer`) or, if `residual` is False, Dropout(`sublayer`).

        x is the sub-layer's input, and `sublayer` is its output.
        """
        sublayer = self.dropped(sublayer, self.dropout)
        return x + sublayer if self.residual else sublayer


def sinusoids_in_halves(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """§3.5's sinusoids with all sines before all cosines."""
    return sinusoids(length, d_model).unflatten(1, (-1, 2)).transpose(1, 2).flatten(1)


class HalvesEmbedding(Embedding):
    """§3.5 with the dimensions of the sinusoids in another order: all sines before all cosines."""

    sinusoids = staticmethod(sinusoids_in_halves)


class OutputMatrix(nn.Module):
    """The matrix before the softmax, if it is not shared with an embedding."""

    def __init__(self, vocabulary: int, d_model: int):
        super().__init__()
        empty = torch.empty(vocabulary, d_model)  # the model initialises the matrix
        self.tokens = nn.Embedding(vocabulary, d_model, _weight=empty)


def self_attention_of(recipe: ModelRecipe) -> MultiHeadAttention:
    """The self-attention of a layer, restricted (§4) if the recipe has a `neighbourhood`."""
    if not recipe.neighbourhood:
        return attention_of(recipe)
    attention = attention_of(recipe, restricted)
    attention.reach = recipe.neighbourhood // 2
    return attention


def attention_of(
    recipe: ModelRecipe, made: Callable[[type[MultiHeadAttention]], Any] = lambda kind: kind
) -> Any:
    """The attention of a layer, by the recipe's `score` and `norm`.

    `made` gets the class that `score` and `norm` select, and returns the class that is used.
    """
    sizes = recipe.d_model, recipe.heads, recipe.d_k, recipe.d_v, recipe.attention_dropout
    if recipe.norm == "pre":
        pre_norm = {
            "scaled": PreNormAttention,
            "dot": PreNormUnscaledAttention,
            "additive": PreNormAdditiveAttention,
        }
        return made(pre_norm[recipe.score])(*sizes, epsilon=recipe.norm_epsilon)
    kinds = {"scaled": MultiHeadAttention, "dot": UnscaledAttention, "additive": AdditiveAttention}
    return made(kinds[recipe.score])(*sizes)


def feed_forward_of(recipe: ModelRecipe) -> FeedForward:
    """The feed-forward network of a layer, with the recipe's `activation` and `norm`."""
    sizes = recipe.d_model, recipe.d_ff, recipe.relu_dropout
    smooth = () if recipe.activation == "relu" else (recipe.activation,)
    if recipe.norm == "pre":
        pre_norm = PreNormSmoothFeedForward if smooth else PreNormFeedForward
        return pre_norm(*sizes, *smooth, epsilon=recipe.norm_epsilon)
    return SmoothFeedForward(*sizes, *smooth) if smooth else FeedForward(*sizes)


def add_norm_of(recipe: ModelRecipe) -> AddNorm | Add:
    """The Add & Norm of a sub-layer, with the recipe's `residual` and `norm`."""
    if recipe.norm == "pre":
        return Add(recipe.dropout, recipe.residual)
    kind = AddNorm if recipe.residual else NormOnly
    return kind(recipe.d_model, recipe.dropout, recipe.norm_epsilon)


def last_norm_of(recipe: ModelRecipe) -> nn.Module:
    """The LayerNorm after the last layer of a stack or, as in the paper, an identity."""
    if recipe.norm == "post":
        return nn.Identity()
    return nn.LayerNorm(recipe.d_model, eps=recipe.norm_epsilon)


def embedding_of(recipe: ModelRecipe, vocabulary: int) -> Embedding:
    """An embedding with the recipe's `positions`."""
    kinds = {"halves": HalvesEmbedding, "words": WordEmbedding}
    return kinds.get(recipe.positions, Embedding)(recipe, vocabulary)


LEAST_BIAS = -1e4
"""A bias of -1e30 on a logit excludes a token. With label smoothing, the loss depends on every
logit, and such a bias would make the loss enormous. For a loss, biases below LEAST_BIAS are
therefore raised to LEAST_BIAS. This excludes a token as well: e^-10000 is 0 in every precision."""
BIAS_COLUMNS = 8
"""The bias of a logit is divided equally among this many columns, which are added to the matrix
before the softmax. Matrix products are fast if the number of columns is a multiple of 8. If a row
of the matrix is rounded to 8 bits, one large number makes the rest of the row inexact, so eight
small parts are better than the whole bias."""


def with_bias_columns(
    states: Float[Tensor, "tokens d_model"],
    matrix: Float[Tensor, "vocabulary d_model"],
    bias: Float[Tensor, " vocabulary"] | None,
) -> tuple[Float[Tensor, "tokens width"], Float[Tensor, "vocabulary width"]]:
    """Add columns to `states` and `matrix`, so that the product states matrix^T includes the bias.

    A bias below `LEAST_BIAS` is raised to `LEAST_BIAS`. If `bias` is None, `states` and `matrix`
    are returned as they are.
    """
    if bias is None:
        return states, matrix
    parts = (bias.clamp(min=LEAST_BIAS) / BIAS_COLUMNS).unsqueeze(1).expand(-1, BIAS_COLUMNS)
    return F.pad(states, (0, BIAS_COLUMNS), value=1.0), torch.cat([matrix, parts], dim=1)
