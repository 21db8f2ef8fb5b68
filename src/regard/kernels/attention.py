"""Attention without its weights: equation (1) as one differentiable operation.

On a GPU it is PyTorch's fused kernel. On a CPU that kernel is many times slower than the matrix
products in it for sentences of usual length, in bf16 most of all; here the gradient is written
out, the softmax runs in fp32, and keys are padded to a full vector of it. Without gradient the
scores of long rows are made for some queries at a time, so that they are never all there.
"""

from collections.abc import Iterator
from copy import copy
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.kernels.device import on_cpu

VECTOR = 16  # fp32 numbers in a 512-bit register: a shorter last run of a softmax row is slow
FUSED = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""On a GPU: the one for masks and short rows, and for widths that it has not. Never cuDNN's, which
builds a plan for each new shape."""
AT_ONCE = 2**22
"""Scores made together on a CPU where there is no gradient: 16 MiB."""
MASKED = -1e30  # finite, so that a row with no key at all stays finite too


class Mask:
    """Where queries may attend, as this device's kernel reads it: made once for all layers."""

    def __init__(self, allowed: Bool[Tensor, "#rows 1 #queries keys"]):
        """`allowed` is True where a query may attend; one that may attend nowhere gives zeros."""
        self.allowed = allowed
        reachable = allowed.any(-1, keepdim=True)
        self.reachable: Tensor | None = reachable
        if on_cpu(allowed):
            self.reachable = None if reachable.all() else reachable
            bias = torch.zeros(allowed.shape).masked_fill_(~allowed, MASKED)
            self.bias = F.pad(bias, (0, -allowed.shape[-1] % VECTOR), value=MASKED)
        else:  # a fused kernel may give NaN for a row without keys: let it see all, then drop that
            self.open = allowed | ~reachable

    def split(self, queries: int) -> Iterator["Mask"]:
        """On a CPU: the masks of so many queries each, one after the other; views of this one."""
        for first in range(0, self.allowed.shape[2], queries):
            part, here = copy(self), slice(first, first + queries)
            part.allowed, part.bias = self.allowed[:, :, here], self.bias[:, :, here]
            part.reachable = None if self.reachable is None else self.reachable[:, :, here]
            yield part


def attend(
    query: Float[Tensor, "rows heads queries d_k"],
    key: Float[Tensor, "rows heads keys d_k"],
    value: Float[Tensor, "rows heads keys d_v"],
    mask: Mask,
    dropout: float = 0.0,
) -> Float[Tensor, "rows heads queries d_v"]:
    """What `regard.attention.attention` computes, without the weights.

    Without gradients, on a CPU, keys and values may be of another precision than the queries, and
    be followed by zeros up to a full vector already.
    `dropout` is the probability of dropping a weight.
    """
    if not on_cpu(query):
        with sdpa_kernel(FUSED):
            output = F.scaled_dot_product_attention(query, key, value, mask.open, dropout)
        assert mask.reachable is not None  # but on a CPU it is always there
        return output * mask.reachable
    if torch.is_grad_enabled():
        return _CpuAttention.apply(query, key, value, mask, dropout)
    return _in_parts(query.to(key.dtype), key, value, mask, dropout).to(query.dtype)


def with_room(
    x: Float[Tensor, "rows heads keys d"], keys: int
) -> Float[Tensor, "rows heads more d"]:
    """Keys or values, then zeros up to so many of them; on a CPU up to the end of a full vector."""
    if on_cpu(x):
        keys += -keys % VECTOR
    return F.pad(x, (0, 0, 0, keys - x.shape[2])) if keys > x.shape[2] else x


def _in_parts(query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float) -> Tensor:
    """The output alone, some queries at a time where there are many scores."""
    rows, heads, queries, _ = query.shape
    some = max(VECTOR, AT_ONCE // (rows * heads * max(1, key.shape[2])))
    if queries <= some or mask.allowed.shape[2] != queries:
        return _attend_on_cpu(query, key, value, mask, dropout)[0]
    key, value = (with_room(kv, kv.shape[2]).contiguous() for kv in (key, value))
    parts = zip(query.split(some, dim=2), mask.split(some), strict=True)
    return torch.cat([_attend_on_cpu(q, key, value, m, dropout)[0] for q, m in parts], dim=2)


def _attend_on_cpu(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float
) -> tuple[Tensor, tuple[Tensor | None, ...]]:
    """The output, and what the gradient needs."""
    rows, heads, queries, d_k = query.shape
    # [rows, heads, length, d] -> [rows * heads, length, d]
    query = query.reshape(rows * heads, queries, d_k)
    key, value = (with_room(kv, kv.shape[2]) for kv in (key, value))
    key = key.reshape(rows * heads, -1, d_k)
    value = value.reshape(rows * heads, -1, value.shape[-1])
    scores = torch.bmm(query, key.transpose(1, 2)).view(rows, heads, queries, -1)
    weights = torch.add(mask.bias, scores, alpha=d_k**-0.5).softmax(-1)
    if mask.reachable is not None:
        weights *= mask.reachable
    weights = weights.view(rows * heads, queries, -1)
    kept = (torch.rand_like(weights) >= dropout) / (1 - dropout) if dropout else None
    dropped = (weights if kept is None else weights * kept).to(query.dtype)
    output = torch.bmm(dropped, value).view(rows, heads, queries, -1)
    return output, (query, key, value, weights, dropped, kept)


class _CpuAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float
    ) -> Tensor:
        ctx.shape = key.shape[:3]
        output, saved = _attend_on_cpu(query, key, value, mask, dropout)
        ctx.save_for_backward(*saved)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, weights, dropped, kept = ctx.saved_tensors
        rows, heads, keys = ctx.shape
        gradient = gradient.reshape(rows * heads, query.shape[1], -1)
        d_value = torch.bmm(dropped.transpose(1, 2), gradient)
        d_weights = torch.bmm(gradient, value.transpose(1, 2)).float()
        if kept is not None:
            d_weights *= kept
        # Of the softmax: dS = P * (dP - sum(dP * P)).
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, torch.float32)
        d_scores = d_scores.mul_(query.shape[-1] ** -0.5).to(query.dtype)
        d_query = torch.bmm(d_scores, key)
        d_key = torch.bmm(d_scores.transpose(1, 2), query)

        def by_head(flat: Tensor) -> Tensor:
            return flat.view(
                rows, heads, *flat.shape[1:]
            )  # [rows * heads, ...] -> [rows, heads, ...]

        return (
            by_head(d_query),
            by_head(d_key)[:, :, :keys],
            by_head(d_value)[:, :, :keys],
            None,
            None,
        )
