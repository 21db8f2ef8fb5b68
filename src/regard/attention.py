"""§3.2 Attention.

"An attention function can be described as mapping a query and a set of key-value pairs to an
output": the output is a sum of the values, weighted by how well the query fits each key.

Masks are boolean, True where a query may attend. Every mask follows from segments: the sentences
that share a row are numbered 1, 2, ..., padding is 0, and a position attends to its own segment.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.arithmetic.attention import Mask, attend
from regard.arithmetic.cache import Cache
from regard.arithmetic.linear import Linear, linear


def attention(
    query: Float[Tensor, "rows heads queries d_k"],
    key: Float[Tensor, "rows heads keys d_k"],
    value: Float[Tensor, "rows heads keys d_v"],
    mask: Bool[Tensor, "#rows 1 #queries keys"],
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "rows heads queries d_v"], Float[Tensor, "rows heads queries keys"]]:
    """Equation (1): Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, and the weights.

    A query that may attend nowhere has zero weights and a zero output.
    """
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    weights = weights.masked_fill(~mask, 0.0)
    return F.dropout(weights, dropout) @ value, weights


def segment_mask(
    queries: Int[Tensor, "rows queries"], keys: Int[Tensor, "rows keys"]
) -> Bool[Tensor, "rows 1 queries keys"]:
    """May attend: both belong to the same segment of the row."""
    return queries[:, None, :, None] == keys[:, None, None, :]


def causal_mask(length: int, device: torch.device) -> Bool[Tensor, "length length"]:
    """§3.2.3: a position of the decoder attends to itself and to those before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class KeysValues(NamedTuple):
    """What a sequence offers to be attended to, projected once and split into heads."""

    keys: Float[Tensor, "rows heads length d_k"]
    values: Float[Tensor, "rows heads length d_v"]


class MultiHeadAttention(nn.Module):
    """§3.2.2: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O.

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V). The h projections of one kind are one matrix.
    `dropout` is on the weights (none in the paper's translation models).
    """

    equation_1 = staticmethod(attend)
    """As fast as it goes; view.recording swaps it, module by module, for the one with weights."""

    def __init__(self, d_model: int, heads: int, d_k: int, d_v: int, dropout: float = 0.0):
        super().__init__()
        self.heads, self.d_k, self.d_v, self.dropout = heads, d_k, d_v, dropout
        self.W_q = Linear(d_model, heads * d_k)
        self.W_k = Linear(d_model, heads * d_k)
        self.W_v = Linear(d_model, heads * d_v)
        self.W_o = Linear(heads * d_v, d_model)
        # It adds the same to every score of a query, which the softmax drops. Its gradient is zero
        # but for rounding, and Adam would make full steps of that, others in every run.
        self.W_k.bias.requires_grad_(False)

        self.W_kv: nn.Module | None = None  # for inference: W_k and W_v as one matrix
        self.W_qkv: nn.Module | None = None
        self.kept: torch.dtype | None = None  # and this instead of the precision of the states

    def forward(
        self,
        x: Float[Tensor, "rows queries d_model"],
        memory: Float[Tensor, "rows keys d_model"],
        mask: Mask,
    ) -> Float[Tensor, "rows queries d_model"]:
        """Queries from x, keys and values from memory (x itself in self-attention)."""
        if x is memory:
            query, past = self.project(x)
            return self.attend(query, self._kept(*past), mask)
        return self.attend(self.queries(x), self.keys_values(memory), mask)

    def project(
        self, x: Float[Tensor, "rows length d_model"]
    ) -> tuple[Float[Tensor, "rows heads length d_k"], KeysValues]:
        """Self-attention's Q W^Q, K W^K and V W^V by head, in one matrix product.

        Keys and values are of the states' precision: a cache takes them in the one that is kept.
        """
        y = (
            self.W_qkv(x)
            if self.W_qkv is not None
            else linear(x, *_joined(self.W_q, self.W_k, self.W_v))
        )
        query, keys, values = self._split(y, self.d_k, self.d_k, self.d_v)
        return query, KeysValues(keys, values)

    def queries(
        self, x: Float[Tensor, "rows queries d_model"]
    ) -> Float[Tensor, "rows heads queries d_k"]:
        """Q W^Q by head."""
        (query,) = self._split(self.W_q(x), self.d_k)
        return query

    def keys_values(self, memory: Float[Tensor, "rows keys d_model"]) -> KeysValues:
        """K W^K and V W^V by head, in one matrix product."""
        y = (
            self.W_kv(memory)
            if self.W_kv is not None
            else linear(memory, *_joined(self.W_k, self.W_v))
        )
        return self._kept(*self._split(y, self.d_k, self.d_v))

    def attend(
        self,
        query: Float[Tensor, "rows heads queries d_k"],
        past: KeysValues | Cache,
        mask: Mask,
    ) -> Float[Tensor, "rows queries d_model"]:
        """Attend from queries to keys and values."""
        dropout = self.dropout if self.training else 0.0
        heads = self.equation_1(query, past.keys, past.values, mask, dropout)
        output: Tensor = self.W_o(heads.transpose(1, 2).flatten(2))  # Concat(head_1, ..., head_h)
        return output

    def pack(self, layer: Callable[[Tensor, Tensor], nn.Module], kept: torch.dtype) -> None:
        """For inference: have `layer` lay out the matrices that are multiplied together as one.

        Keys and values are kept, and attended to, in the precision `kept`.
        """
        self.kept = kept
        self.W_kv = layer(*_joined(self.W_k, self.W_v))
        self.W_qkv = layer(*_joined(self.W_q, self.W_k, self.W_v))
        del self.W_k, self.W_v

    def _kept(self, *keys_values: Tensor) -> KeysValues:
        return KeysValues(*(x if self.kept is None else x.to(self.kept) for x in keys_values))

    def _split(self, x: Tensor, *widths: int) -> list[Tensor]:
        # [rows, length, heads * d] -> [rows, heads, length, d], for each
        parts = x.split([self.heads * width for width in widths], dim=-1)
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]


def _joined(*layers: nn.Linear) -> tuple[Tensor, Tensor]:
    return torch.cat([x.weight for x in layers]), torch.cat([x.bias for x in layers])
