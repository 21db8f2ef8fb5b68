"""A kernel for a GPU: the indices of the largest values, as `regard.hypotheses.ranking` gives them.

PyTorch's operations would launch twelve kernels to rank once, and a step of a search ranks four
times.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor


def ranking_kernel(
    values: Float[Tensor, "sentences values"], count: int
) -> Int[Tensor, "sentences count"]:
    """The indices of the `count` largest values, largest first; equal values keep their order.

    NaN counts as the largest value. If there are fewer than `count` values, all are ranked.
    """
    sentences, number = values.shape
    count = min(count, number)
    places = torch.empty(sentences, count, dtype=torch.long, device=values.device)
    size = max(64, triton.next_power_of_2(number))
    warps = 1 if size <= 256 else 4
    _rank[(sentences,)](values.float().contiguous(), places, number, count, size, num_warps=warps)
    return places


@triton.jit(do_not_specialize=["number"])  # type: ignore[untyped-decorator]
def _rank(  # type: ignore[no-untyped-def]  # Triton knows no Python types
    values, places, number, count: tl.constexpr, size: tl.constexpr
):
    """One program writes the indices of one sentence's `count` largest values to `places`.

    A sentence has `number` values. `size` is a power of 2, and at least `number`.
    """
    taken: tl.constexpr = -2147483648  # marks ranked values; it is less than `ordered` of any value
    sentence = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, size)
    x = tl.load(values + sentence * number + index, mask=index < number, other=0.0)
    # Equal values must have equal bits: -0 becomes 0, and every NaN becomes the same NaN.
    x = tl.where(x == 0.0, 0.0, tl.where(x != x, float("nan"), x))
    bits = x.to(tl.int32, bitcast=True)
    # A smaller negative float has a larger integer in its last 31 bits, so these bits are inverted.
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    ordered = tl.where(index < number, ordered, taken)
    for i in range(count):
        best = tl.max(ordered, axis=0)
        place = tl.min(tl.where(ordered == best, index, size), axis=0)
        tl.store(places + sentence * count + i, place)
        ordered = tl.where(index == place, taken, ordered)
