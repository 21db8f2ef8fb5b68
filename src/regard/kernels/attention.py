"""Attention without its weights: equation (1) as one differentiable operation.

On a GPU it is PyTorch's fused kernel. On a CPU that kernel is many times slower than the matrix
products in it for sentences of usual length, in bf16 most of all; here the gradient is written
out, the softmax runs in fp32, and keys are padded to a full vector of it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

VECTOR = 16  # fp32 numbers in a 512-bit register: a shorter last run of a softmax row is slow
MASKED = -1e30  # finite, so that a row with no key at all stays finite too


def attend(
    query: Float[Tensor, "rows heads queries d_k"],
    key: Float[Tensor, "rows heads keys d_k"],
    value: Float[Tensor, "rows heads keys d_v"],
    mask: Bool[Tensor, "#rows 1 #queries keys"],
    dropout: float = 0.0,
) -> Float[Tensor, "rows heads queries d_v"]:
    """What `regard.attention.attention` computes, without the weights.

    `mask` is True where a query may attend; a query that may attend nowhere gives zeros.
    `dropout` is the probability of dropping a weight.
    """
    if query.device.type == "cpu":
        output: Tensor = _CpuAttention.apply(query, key, value, mask, dropout)
        return output
    reachable = mask.any(-1, keepdim=True)
    # A fused kernel may give NaN for a row without keys: let such a row see all, then drop it.
    output = F.scaled_dot_product_attention(query, key, value, mask | ~reachable, dropout)
    return output * reachable


class _CpuAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float
    ) -> Tensor:
        rows, heads, queries, d_k = query.shape
        keys = key.shape[2]
        padding = -keys % VECTOR
        # [rows, heads, length, d] -> [rows * heads, length, d]
        query = query.reshape(rows * heads, queries, d_k)
        key = F.pad(key, (0, 0, 0, padding)).reshape(rows * heads, keys + padding, d_k)
        value = F.pad(value, (0, 0, 0, padding)).reshape(rows * heads, keys + padding, -1)

        bias = torch.zeros(mask.shape).masked_fill_(~mask, MASKED)
        bias = F.pad(bias, (0, padding), value=MASKED)
        scores = torch.bmm(query, key.transpose(1, 2)).view(rows, heads, queries, -1)
        weights = torch.add(bias, scores, alpha=d_k**-0.5).softmax(-1)
        reachable = mask.any(-1, keepdim=True)
        if not reachable.all():
            weights *= reachable
        weights = weights.view(rows * heads, queries, -1)
        kept = (torch.rand_like(weights) >= dropout) / (1 - dropout) if dropout else None
        dropped = (weights if kept is None else weights * kept).to(query.dtype)
        ctx.save_for_backward(query, key, value, weights, dropped, kept)
        ctx.shape = (rows, heads, keys)
        return torch.bmm(dropped, value).view(rows, heads, queries, -1)

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
