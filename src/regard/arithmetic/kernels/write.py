"""A kernel for a GPU: it writes the keys and values of a step of decoding into a cache."""

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

_WARPS = 4


def write_kernel(
    keys: Float[Tensor, "sentences heads slots d_k"],
    values: Float[Tensor, "sentences heads slots d_v"],
    new_keys: Float[Tensor, "sentences heads new d_k"],
    new_values: Float[Tensor, "sentences heads new d_v"],
    places: Int[Tensor, "sentences new"],
) -> bool:
    """Write new keys and values into the slots `places` of `keys` and `values`; returns True.

    `keys` and `values` are contiguous in memory.
    """
    sentences, heads, new, _ = new_keys.shape
    for store, some in (keys, new_keys), (values, new_values):
        width = store.shape[3]
        some = some if some.stride(3) == 1 else some.contiguous()
        size = triton.next_power_of_2(heads * width)
        _write[(sentences, new)](
            store, some, places.contiguous(), store.shape[2], heads, new, width,
            *some.stride()[:3], size, num_warps=_WARPS,
        )  # fmt: skip
    return True


# The capacity (the number of slots) changes between groups of steps. Without these options, Triton
# would compile the kernel again for some capacities, as for some numbers of keys in `attend`.
@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["capacity"], do_not_specialize_on_alignment=["new"]
)
def _write(  # type: ignore[no-untyped-def]  # Triton knows no Python types
    store, new, places, capacity,
    heads: tl.constexpr, count: tl.constexpr, width: tl.constexpr,
    of_sentence: tl.constexpr, of_head: tl.constexpr, of_new: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """One program writes the keys, or the values, of one token in all heads.

    `of_sentence`, `of_head` and `of_new` are the strides of `new`.
    """
    sentence, which = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.arange(0, size)
    head, within = at // width, at % width
    real = head < heads
    slot = tl.load(places + sentence * count + which)
    x = tl.load(new + sentence * of_sentence + head * of_head + which * of_new + within, mask=real)
    target = store + ((sentence * heads + head) * capacity + slot) * width + within
    tl.store(target, x, mask=real)
