"""Attention without its weights: equation (1) as one differentiable operation.

On a GPU it is PyTorch's fused kernel. On a CPU that kernel is many times slower than the matrix
products in it for sentences of usual length, in bf16 most of all; here the gradient is written
out, the softmax runs in fp32, and keys are padded to a full vector of it. Without gradient the
scores of many or long rows are made a part at a time, so that they are never all there.
"""

from collections.abc import Callable
from copy import copy
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.arithmetic.device import on_cpu
from regard.arithmetic.dropout import kept
from regard.arithmetic.one_core import array, by_loops

VECTOR = 16  # fp32 numbers in a 512-bit register: a shorter last run of a softmax row is slow
FUSED = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""On a GPU: the one for masks and short rows, and for widths that it has not. Never cuDNN's, which
builds a plan for each new shape."""
AT_ONCE = 2**22
"""Scores made together on a CPU where there is no gradient: 16 MiB."""
QUERIES, KEYS = 256, 128
"""Of a row, on a CPU where there is no gradient: queries that are multiplied together, and values
that are added up together. See kernels.exact."""
GROUP = 4
"""Queries are multiplied by so many there: one alone, or a last one, is another kernel's work."""
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

    def part(self, rows: slice, queries: slice) -> "Mask":
        """On a CPU: the mask of these rows and queries, a view of this one."""

        def cut(x: Tensor) -> Tensor:  # but not where it is one for all
            return x[rows if len(x) > 1 else slice(1), :, queries if x.shape[2] > 1 else slice(1)]

        part = copy(self)
        part.allowed, part.bias = cut(self.allowed), cut(self.bias)
        part.reachable = None if self.reachable is None else cut(self.reachable)
        return part


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
    # In one pass each: the precision and the order that the products read, then those of W_o.
    ready = query.to(key.dtype, memory_format=torch.contiguous_format)
    output = _in_parts(ready, key, value, mask, dropout).transpose(1, 2)
    return output.to(query.dtype, memory_format=torch.contiguous_format).transpose(1, 2)


def with_room(
    x: Float[Tensor, "rows heads keys d"], keys: int
) -> Float[Tensor, "rows heads more d"]:
    """Keys or values, then zeros up to so many of them; on a CPU up to the end of a full vector."""
    if on_cpu(x):
        keys += -keys % VECTOR
    return F.pad(x, (0, 0, 0, keys - x.shape[2])) if keys > x.shape[2] else x


def _in_parts(query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float) -> Tensor:
    """The output alone; where there are many scores some rows at a time, of long ones some queries.

    How the queries of a row are divided is not a question of how many rows there are.
    """
    rows, heads, queries, _ = query.shape
    scores = heads * max(1, key.shape[2])  # of one query
    length = min(QUERIES, max(1, AT_ONCE // (scores * VECTOR)) * VECTOR)
    height = max(1, AT_ONCE // (scores * max(1, min(queries, length))))
    if queries <= length and rows <= height:
        return _output(query, key, value, mask, dropout)
    outputs = []
    for here in _slices(rows, height):
        k, v = (with_room(kv[here], kv.shape[2]).contiguous() for kv in (key, value))
        parts = [
            _output(query[here, :, some], k, v, mask.part(here, some), dropout)
            for some in _slices(queries, length)
        ]
        outputs.append(torch.cat(parts, dim=2))
    return torch.cat(outputs)


def _slices(total: int, step: int) -> list[slice]:
    return [slice(first, first + step) for first in range(0, total, step)]


def _output(query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float) -> Tensor:
    """The output, summed from the left: what adds nothing at the end changes nothing before it."""
    _, _, value, _, weights, _ = _weighed(query, key, value, mask, dropout, _product)
    # one layout of the parts, whatever the width of the whole: another is another kernel's work
    output = _product(weights[..., :KEYS].contiguous(), value[:, :KEYS])
    for some in _slices(value.shape[1], KEYS)[1:]:
        output = output.float() + _product(weights[..., some].contiguous(), value[:, some])
    return output.to(query.dtype).view(*query.shape[:3], -1)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """What torch.bmm computes; in fp32, which alone is exact, of full groups of rows."""
    rows = left.shape[1]
    if rows % GROUP == 0 or left.dtype != torch.float32:
        return torch.bmm(left, right)
    return torch.bmm(F.pad(left, (0, 0, 0, -rows % GROUP)), right)[:, :rows]


def _weighed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask,
    dropout: float,
    product: Callable[[Tensor, Tensor], Tensor] = torch.bmm,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]:
    """Queries, keys and values by head; weights, those after dropout, and what that scaled by."""
    rows, heads, queries, d_k = query.shape
    key, value = (with_room(kv, kv.shape[2]) for kv in (key, value))
    # [rows, heads, length, d] -> [rows * heads, length, d]; for one row this alone would be a view
    query, key, value = (x.contiguous().flatten(0, 1) for x in (query, key, value))
    scores = product(query, key.transpose(1, 2)).view(rows, heads, queries, -1)
    if dropout == 0.0 and by_loops():
        weights = _softmax(scores, mask.bias, d_k**-0.5)
    else:
        weights = torch.add(mask.bias, scores, alpha=d_k**-0.5).softmax(-1)
    if mask.reachable is not None:
        weights *= mask.reachable
    weights = weights.view(rows * heads, queries, -1)
    scaled = kept(weights, dropout) / (1 - dropout) if dropout else None
    dropped = (weights if scaled is None else weights * scaled).to(query.dtype)
    return query, key, value, weights, dropped, scaled


def _softmax(scores: Tensor, bias: Tensor, factor: float) -> Tensor:
    """Of scores * factor + bias, by a loop: in the precision of the scores."""
    from regard.arithmetic.loops.attention import weights

    scores = scores.contiguous()
    out = torch.empty_like(scores)
    weights(array(scores), array(bias.contiguous()), factor, array(out))
    return out


def _softmax_backward(
    gradient: Tensor, weights: Tensor, scaled: Tensor | None, factor: float
) -> Tensor:
    """The gradient of the scores: P * (dP - sum(dP * P)) * factor."""
    if scaled is None and weights.dtype == gradient.dtype and by_loops():
        from regard.arithmetic.loops.attention import weights_backward

        weights_backward(array(gradient), array(weights), factor)
        return gradient
    d_weights = gradient.float()
    if scaled is not None:
        d_weights *= scaled
    d_scores = torch._softmax_backward_data(d_weights, weights.float(), -1, torch.float32)
    return d_scores.mul_(factor).to(gradient.dtype)


class _CpuAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float
    ) -> Tensor:
        ctx.shape = key.shape[:3]
        saved = _weighed(query, key, value, mask, dropout)
        ctx.save_for_backward(*saved)
        _, _, value, _, dropped, _ = saved
        return torch.bmm(dropped, value).view(*query.shape[:3], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, key, value, weights, dropped, scaled = ctx.saved_tensors
        rows, heads, keys = ctx.shape
        gradient = gradient.reshape(rows * heads, query.shape[1], -1)
        d_value = torch.bmm(dropped.transpose(1, 2), gradient)
        d_weights = torch.bmm(gradient, value.transpose(1, 2))
        d_scores = _softmax_backward(d_weights, weights, scaled, query.shape[-1] ** -0.5)
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
