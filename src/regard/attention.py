"""§3.2 Attention.

"An attention function can be described as mapping a query and a set of key-value pairs to an
output": the output is a sum of the values, weighted by how well the query fits each key.

Masks are boolean, True where a query may attend. Sentences that share a row are the row's segments,
numbered from 1; padding has the number 0. A position attends to positions of its own segment only.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.equations import Computing, Mask


def attention(
    query: Float[Tensor, "rows heads queries d_k"],
    key: Float[Tensor, "rows heads keys d_k"],
    value: Float[Tensor, "rows heads keys d_v"],
    mask: Bool[Tensor, "#rows 1 #queries keys"],
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "rows heads queries d_v"], Float[Tensor, "rows heads queries keys"]]:
    """Equation (1): softmax(Q K^T / sqrt(d_k)) V, with dropout on the attention weights.

    The second result is the weights before dropout. Both results are 0 where no key is allowed.
    """
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    weights = weights.masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout) @ value, weights


def segment_mask(
    queries: Int[Tensor, "rows queries"], keys: Int[Tensor, "rows keys"], *, causal: bool = False
) -> Bool[Tensor, "rows 1 queries keys"]:
    """True where a key has the query's segment number and, if `causal`, is not after the query."""
    same = queries[:, None, :, None] == keys[:, None, None, :]
    return same & causal_mask(keys.shape[1], keys.device) if causal else same


def causal_mask(length: int, device: torch.device) -> Bool[Tensor, "length length"]:
    """§3.2.3: the mask that lets a position attend to itself and to the positions before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class MultiHeadAttention(Computing):
    """§3.2.2: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O.

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). W_q, W_k and W_v join the matrices of all heads.
    `dropout` applies to the attention weights; the paper's translation models have none.
    """

    def __init__(self, d_model: int, heads: int, d_k: int, d_v: int, dropout: float = 0.0):
        super().__init__()
        self.heads, self.d_k, self.d_v, self.dropout = heads, d_k, d_v, dropout
        self.W_q = nn.Linear(d_model, heads * d_k)
        self.W_k = nn.Linear(d_model, heads * d_k)
        self.W_v = nn.Linear(d_model, heads * d_v)
        self.W_o = nn.Linear(heads * d_v, d_model)
        # The bias of the keys is not trained. It adds the same number to every score of a query,
        # so the softmax cancels it. Its gradient is rounding noise, which Adam would turn into
        # full-size steps that differ from run to run.
        self.W_k.bias.requires_grad_(False)

    def forward(
        self,
        x: Float[Tensor, "rows queries d_model"],
        memory: Float[Tensor, "rows keys d_model"],
        mask: Mask,
    ) -> Float[Tensor, "rows queries d_model"]:
        """Attend from x (queries) to `memory` (keys and values), which is x in self-attention."""
        if x is memory:
            return self.attend(*self.project(x), mask)
        return self.attend(self.queries(x), *self.keys_values(memory), mask)

    def project(self, x: Float[Tensor, "rows length d_model"]) -> tuple[Tensor, Tensor, Tensor]:
        """x W^Q, x W^K and x W^V for self-attention, each [rows, heads, length, width]."""
        y = self.by.linear(x, self.W_q, self.W_k, self.W_v)
        query, keys, values = self._by_head(y, self.d_k, self.d_k, self.d_v)
        return query, keys, values

    def queries(
        self, x: Float[Tensor, "rows queries d_model"]
    ) -> Float[Tensor, "rows heads queries d_k"]:
        """The queries of each head: x W^Q."""
        return self._by_head(self.by.linear(x, self.W_q), self.d_k)[0]

    def keys_values(self, memory: Float[Tensor, "rows keys d_model"]) -> tuple[Tensor, Tensor]:
        """The keys (memory W^K) and the values (memory W^V), each [rows, heads, keys, width]."""
        y = self.by.linear(memory, self.W_k, self.W_v)
        keys, values = self._by_head(y, self.d_k, self.d_v)
        return keys, values

    def attend(
        self,
        query: Float[Tensor, "rows heads queries d_k"],
        keys: Float[Tensor, "rows heads slots d_k"],
        values: Float[Tensor, "rows heads slots d_v"],
        mask: Mask,
    ) -> Float[Tensor, "rows queries d_model"]:
        """Compute equation (1) in each head, and multiply the joined heads by W^O."""
        heads = self.by.attend(query, keys, values, mask, self.dropout if self.training else 0.0)
        return self.by.linear(heads.transpose(1, 2).flatten(2), self.W_o)

    def _by_head(self, x: Tensor, *widths: int) -> list[Tensor]:
        # [rows, length, heads * d] -> [rows, heads, length, d], for each width d
        parts = x.split([self.heads * width for width in widths], dim=-1)
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]
