"""§3.1 and §3.2 with one thing changed: the questions "and without it?" that readers ask.

A recipe's `model.score` and `model.residual` choose these modules when a model is built. Nothing
else knows of them, and no recipe of the paper uses them; `regard claims` trains with them.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import MultiHeadAttention
from regard.equations import Mask
from regard.layers import AddNorm
from regard.recipe import ModelRecipe


class UnscaledAttention(MultiHeadAttention):
    """§3.2.1 without the scaling: softmax(Q K^T) V."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Mask) -> Tensor:
        """Equation (1) divides by sqrt(d_k), so the queries are multiplied by it."""
        return super().attend(query * self.d_k**0.5, keys, values, mask)


class AdditiveAttention(MultiHeadAttention):
    """§3.2.1's "additive attention": a network with one hidden layer scores each query and key.

    score(q, k) = w · tanh(q + k) in each head (Bahdanau et al. 2014), where q = x W^Q and k = m W^K
    are the two halves of the hidden layer's product. It is computed by this definition, whatever
    the arithmetic of the model: for each pair of positions, d_k numbers are kept.

    The bias of the keys is not trained here either: it is added to that of the queries.
    """

    def __init__(self, d_model: int, heads: int, d_k: int, d_v: int, dropout: float = 0.0):
        super().__init__(d_model, heads, d_k, d_v, dropout)
        self.w = nn.Parameter(torch.empty(heads, d_k))
        if not self.w.is_meta:
            nn.init.normal_(self.w, std=d_k**-0.5)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Mask) -> Tensor:
        """Weigh the values by the softmax of the additive scores in each head, then W^O."""
        used = mask.allowed.shape[-1]  # a cache may have further slots, in another precision
        keys, values = (x[:, :, :used].to(query.dtype) for x in (keys, values))
        scores = additive_scores(query, keys, self.w.to(query.dtype))
        weights = scores.masked_fill(~mask.allowed, torch.finfo(scores.dtype).min).softmax(-1)
        weights = weights.masked_fill(~mask.allowed, 0.0)
        if self.training and self.dropout:
            weights = self.by.drop(weights, self.dropout)
        return self.by.linear((weights @ values).transpose(1, 2).flatten(2), self.W_o)


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


def attention_of(recipe: ModelRecipe) -> MultiHeadAttention:
    """The attention of a layer, with the recipe's `score`."""
    kinds = {"scaled": MultiHeadAttention, "dot": UnscaledAttention, "additive": AdditiveAttention}
    return kinds[recipe.score](
        recipe.d_model, recipe.heads, recipe.d_k, recipe.d_v, recipe.attention_dropout
    )


def add_norm_of(recipe: ModelRecipe) -> AddNorm:
    """The Add & Norm of a sub-layer, with the residual connection or without it."""
    return (AddNorm if recipe.residual else NormOnly)(recipe.d_model, recipe.dropout)
