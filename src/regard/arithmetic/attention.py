"""Compute equation (1) on a CPU; the attention weights are not returned.

For sentences of usual length, PyTorch's fused kernel takes many times longer on a CPU than the
matrix products alone would take, most of all in bf16. This module computes the products by
torch.bmm, and the softmax in fp32. It pads the number of keys, so that the scores of a query fill
whole vector registers, and it has its own backward pass. Without gradients, the scores of many rows
(sequences), or of long rows, are computed in parts, and are never all in memory.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.cache import padded
from regard.equations import Mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from regard.arithmetic.cpu import Cpu

VECTOR = 16
"""The number of keys is padded to a multiple of `VECTOR`. A 512-bit register holds 16 fp32 numbers,
and the softmax is slow if the scores of a query do not fill whole registers."""
SCORES_AT_ONCE = 2**22
"""Without gradients, at most this many scores (16 MiB in fp32) are computed together, padding not
counted. But at least `VECTOR` queries of a row (sequence) are computed together, even if these
queries have more scores."""
QUERIES, KEYS = 256, 128
"""Without gradients, a matrix product has at most `QUERIES` queries of a row (sequence). A product
of attention weights and values sums over at most `KEYS` keys. `arithmetic.exact` relies on these
two limits."""
GROUP = 4
"""Without gradients, in fp32, the number of queries is padded to a multiple of `GROUP`, because
PyTorch computes a smaller group of queries by another kernel, which may round differently."""
MASKED = -1e30  # MASKED is finite, because the softmax of a row of -inf would be NaN


class CpuMask(Mask):
    """A mask for a CPU: a bias that is added to the scores, 0 or a large negative number."""

    def __init__(self, allowed: Bool[Tensor, "#rows 1 #queries keys"]):
        super().__init__(allowed)
        reachable = allowed.any(-1, keepdim=True)
        self.reachable = None if reachable.all() else reachable
        """True for queries that may attend to at least one key; None if all queries may."""
        bias = torch.zeros(allowed.shape, dtype=torch.float32).masked_fill_(~allowed, MASKED)
        self.bias = F.pad(bias, (0, -allowed.shape[-1] % VECTOR), value=MASKED)

    def part(self, rows: slice, queries: slice) -> CpuMask:
        """The mask of some rows and queries; its tensors are views of the whole mask's tensors."""

        def cut(x: Tensor) -> Tensor:  # a dimension of size 1 is broadcast, so it is not cut
            return x[rows if len(x) > 1 else slice(1), :, queries if x.shape[2] > 1 else slice(1)]

        part = copy(self)
        part.allowed, part.bias = cut(self.allowed), cut(self.bias)
        part.reachable = None if self.reachable is None else cut(self.reachable)
        return part


class _Weighed(NamedTuple):
    """Queries, keys and values as [rows * heads, length, d], and the attention weights."""

    query: Tensor
    key: Tensor
    value: Tensor
    weights: Tensor
    """The weights before dropout, in fp32. Without dropout, if `one_core.Loops` computed the
    weights, they are in the scores' precision instead."""
    dropped: Tensor
    """The weights after dropout, in the queries' precision."""
    factors: Tensor | None
    """The numbers by which dropout multiplies the weights; None without dropout."""


class CpuAttention(torch.autograd.Function):
    """Equation (1) with its own backward pass.

    torch.bmm computes the matrix products. `by` computes the softmax, its gradient and the random
    mask of dropout.
    """

    @staticmethod
    def forward(
        ctx: Any,
        by: Cpu,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: CpuMask,
        dropout: float,
    ) -> Tensor:
        """Return the output, [rows, heads, queries, d_v]."""
        ctx.by, ctx.shape = by, key.shape[:3]
        weighed = _weighed(by, query, key, value, mask, dropout, torch.bmm)
        ctx.save_for_backward(*weighed)
        return torch.bmm(weighed.dropped, weighed.value).view(*query.shape[:3], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of queries, keys and values."""
        query, key, value, weights, dropped, factors = _Weighed(*ctx.saved_tensors)
        rows, heads, keys = ctx.shape
        gradient = gradient.reshape(rows * heads, query.shape[1], -1)
        d_value = torch.bmm(dropped.transpose(1, 2), gradient)
        d_weights = torch.bmm(gradient, value.transpose(1, 2))
        factor = query.shape[-1] ** -0.5
        d_scores = ctx.by.attention_weights_backward(d_weights, weights, factors, factor)
        d_query = torch.bmm(d_scores, key)
        d_key = torch.bmm(d_scores.transpose(1, 2), query)

        def by_head(flat: Tensor) -> Tensor:  # [rows * heads, ...] -> [rows, heads, ...]
            return flat.view(rows, heads, *flat.shape[1:])

        d_key, d_value = by_head(d_key)[:, :, :keys], by_head(d_value)[:, :, :keys]
        return None, by_head(d_query), d_key, d_value, None, None


def attend_without_gradient(
    by: Cpu,
    query: Float[Tensor, "rows heads queries d_k"],
    key: Float[Tensor, "rows heads keys d_k"],
    value: Float[Tensor, "rows heads keys d_v"],
    mask: CpuMask,
    dropout: float,
) -> Float[Tensor, "rows heads queries d_v"]:
    """Equation (1), with products in the keys' precision, and an output in the queries' precision.

    Keys and values may already be padded with zeros to a multiple of `VECTOR`.
    """
    # Each .to() copies at most once: to the precision and memory layout that the next step needs.
    ready = query.to(key.dtype, memory_format=torch.contiguous_format)
    output = _in_parts(by, ready, key, value, mask, dropout).transpose(1, 2)
    return output.to(query.dtype, memory_format=torch.contiguous_format).transpose(1, 2)


def _in_parts(
    by: Cpu, query: Tensor, key: Tensor, value: Tensor, mask: CpuMask, dropout: float
) -> Tensor:
    """Compute the output for some rows at a time and, if rows are long, some queries at a time.

    A row is a sequence of the batch. The division of a row's queries into parts does not depend on
    the number of rows.
    """
    rows, heads, queries, _ = query.shape
    scores = heads * max(1, key.shape[2])  # the number of scores of one query
    length = min(QUERIES, max(1, SCORES_AT_ONCE // (scores * VECTOR)) * VECTOR)
    height = max(1, SCORES_AT_ONCE // (scores * max(1, min(queries, length))))
    if queries <= length and rows <= height:
        return _output(by, query, key, value, mask, dropout)
    outputs = []
    for here in _slices(rows, height):
        k, v = (padded(kv[here], kv.shape[2], VECTOR).contiguous() for kv in (key, value))
        parts = [
            _output(by, query[here, :, some], k, v, mask.part(here, some), dropout)
            for some in _slices(queries, length)
        ]
        outputs.append(torch.cat(parts, dim=2))
    return torch.cat(outputs)


def _slices(total: int, step: int) -> list[slice]:
    return [slice(first, first + step) for first in range(0, total, step)]


def _output(
    by: Cpu, query: Tensor, key: Tensor, value: Tensor, mask: CpuMask, dropout: float
) -> Tensor:
    """Compute the output as a sum over groups of `KEYS` keys, from left to right.

    A group of keys whose weights are all 0 changes no bit of the output.
    """
    weighed = _weighed(by, query, key, value, mask, dropout, _product)
    weights, value = weighed.dropped, weighed.value
    # The weights are made contiguous, because a kernel for strided matrices may round differently.
    output = _product(weights[..., :KEYS].contiguous(), value[:, :KEYS])
    for some in _slices(value.shape[1], KEYS)[1:]:
        output = output.float() + _product(weights[..., some].contiguous(), value[:, some])
    return output.to(query.dtype).view(*query.shape[:3], -1)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Return torch.bmm(left, right); in fp32, first pad `left` to a multiple of `GROUP` rows.

    The result has no padding rows. The padding is made for `ExactInference`, which attends only in
    fp32.
    """
    rows = left.shape[1]
    if rows % GROUP == 0 or left.dtype != torch.float32:
        return torch.bmm(left, right)
    return torch.bmm(F.pad(left, (0, 0, 0, -rows % GROUP)), right)[:, :rows]


def _weighed(
    by: Cpu,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: CpuMask,
    dropout: float,
    product: Callable[[Tensor, Tensor], Tensor],
) -> _Weighed:
    """Compute the attention weights; `product` multiplies the queries by the keys."""
    rows, heads, queries, d_k = query.shape
    key, value = (padded(kv, kv.shape[2], VECTOR) for kv in (key, value))
    # [rows, heads, length, d] -> [rows * heads, length, d], contiguous even if there is one row
    query, key, value = (x.contiguous().flatten(0, 1) for x in (query, key, value))
    scores = product(query, key.transpose(1, 2)).view(rows, heads, queries, -1)
    weights = by.attention_weights(scores, mask.bias, d_k**-0.5, dropout)
    if mask.reachable is not None:
        weights *= mask.reachable
    weights = weights.view(rows * heads, queries, -1)
    factors = by.keep_mask(weights, dropout) / (1 - dropout) if dropout else None
    dropped = (weights if factors is None else weights * factors).to(query.dtype)
    return _Weighed(query, key, value, weights, dropped, factors)
