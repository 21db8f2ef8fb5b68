"""A kernel for a GPU: equation (1) for few queries, as in a step of decoding.

Kernels for training compute 64 or more queries of one head together. A step of decoding has only
one query for each hypothesis of a sentence, so such kernels would mostly compute unused scores.
"""

import triton
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor

_SLOTS, _WARPS, _STAGES = 16, 1, 3
"""A program computes `_SLOTS` keys together. These three numbers were the fastest of 12
combinations on an H200, for each of four shapes."""


def attend_kernel(
    query: Float[Tensor, "rows heads queries d_k"],
    keys: Float[Tensor, "rows heads slots d_k"],
    values: Float[Tensor, "rows heads slots d_v"],
    allowed: Bool[Tensor, "#rows 1 #queries keys"],
) -> Float[Tensor, "rows heads queries d_v"]:
    """softmax(Q K^T / sqrt(d_k)) V; the output of a query that may not attend to any key is 0.

    `keys` and `values` may end in unused slots, which `allowed` does not cover. In memory, the
    output has the heads of each query side by side, because the next layer reads them so.
    """
    (rows, heads, queries, d_k), d_v = query.shape, values.shape[3]
    output = query.new_empty(rows, queries, heads, d_v).transpose(1, 2)
    # The kernel needs queries at equal distances in memory, one row directly after another.
    if query.stride(3) != 1 or query.stride(0) != queries * query.stride(2):
        query = query.transpose(1, 2).contiguous().transpose(1, 2)
    allowed = allowed.expand(rows, -1, -1, -1).contiguous()
    _attend[(rows, heads)](
        query, keys.contiguous(), values.contiguous(), allowed, output,
        queries, allowed.shape[3], keys.shape[2], heads, d_k, d_v, d_k**-0.5,
        query.stride(1), query.stride(2), allowed.shape[2] > 1,
        _padded(queries), _padded(d_k), _padded(d_v), _SLOTS,
        num_warps=_WARPS, num_stages=_STAGES,
    )  # fmt: skip
    return output


def _padded(size: int) -> int:
    """`size` rounded up to a power of 2, at least 16: `tl.dot` takes no smaller blocks."""
    return max(16, triton.next_power_of_2(size))


# The number of keys changes between groups of steps; in an encoder, the number of queries changes
# between batches. Without these options, Triton would compile the kernel again for some of these
# numbers, which takes time.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["queries", "count", "capacity"],
    do_not_specialize_on_alignment=["query", "allowed"],
)
def _attend(  # type: ignore[no-untyped-def]  # Triton knows no Python types
    query, keys, values, allowed, output, queries, count, capacity,
    heads: tl.constexpr, d_k: tl.constexpr, d_v: tl.constexpr, scale: tl.constexpr,
    of_head: tl.constexpr, of_query: tl.constexpr, each_query: tl.constexpr,
    some: tl.constexpr, k_width: tl.constexpr, v_width: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """One program computes one head of one row, `size` keys at a time.

    `count` is the number of keys, and `capacity` the number of slots. `of_head` and `of_query` are
    strides of `query`. `each_query` says whether each query has a mask of its own. `some`,
    `k_width` and `v_width` are the number of queries, d_k and d_v, rounded up by `_padded`.
    """
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    one, k_at, v_at = tl.arange(0, some), tl.arange(0, k_width), tl.arange(0, v_width)
    exists = one < queries
    q_place = query + (row * queries + one)[:, None] * of_query + head * of_head + k_at[None, :]
    q = tl.load(q_place, mask=exists[:, None] & (k_at < d_k)[None, :], other=0.0)
    masks = allowed + (row * queries + one if each_query else row + 0 * one)[:, None] * count
    first_slot = (row * heads + head) * capacity
    top = tl.full([some], float("-inf"), tl.float32)  # the largest score so far
    total = tl.zeros([some], tl.float32)  # the sum of exp(score - top)
    weighted = tl.zeros([some, v_width], tl.float32)  # the sum of exp(score - top) * value
    for first in range(0, count, size):
        slot = first + tl.arange(0, size)
        is_key = slot < count
        may = tl.load(masks + slot[None, :], mask=exists[:, None] & is_key[None, :], other=0)
        k_place = keys + (first_slot + slot)[None, :] * d_k + k_at[:, None]
        k = tl.load(k_place, mask=is_key[None, :] & (k_at < d_k)[:, None], other=0.0)
        v_place = values + (first_slot + slot)[:, None] * d_v + v_at[None, :]
        v = tl.load(v_place, mask=is_key[:, None] & (v_at < d_v)[None, :], other=0.0)
        score = tl.dot(q, k, input_precision="ieee") * scale
        score = tl.where(may != 0, score, float("-inf"))
        new = tl.maximum(top, tl.max(score, axis=1))
        base = tl.where(new == float("-inf"), 0.0, new)
        weight = tl.exp(score - base[:, None])
        fade = tl.exp(top - base)
        total = total * fade + tl.sum(weight, axis=1)
        more = tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        weighted = weighted * fade[:, None] + more
        top = new
    result = weighted / tl.where(total == 0.0, 1.0, total)[:, None]
    o_place = output + ((row * queries + one)[:, None] * heads + head) * d_v + v_at[None, :]
    tl.store(o_place, result, mask=exists[:, None] & (v_at < d_v)[None, :])
