"""Sentences that are decoded together, each as if it were alone, to the last bit; on a CPU.

The result of a kernel for one row may depend on how many rows there are, because the order in which
it adds may. What lies between the products does not: it is computed number by number or row by row.
The products of `Int8Linear` add integers, which is exact in any order. Of the other products,

- one with a weight is made in blocks of few sizes (`BlockedLinear`);
- one of attention is made in fp32 for each sentence and head by itself, as wide as the widest
  sentence needs. What a sentence does not attend to adds zeros at the end of its sums, and these
  are made from the left, `attention.KEYS` values at a time: whole blocks of zeros change nothing.

That a row comes out the same in each place of each block, and that zeros at the end of a block
change nothing, is true of the kernels that were measured, and promised by none. So both are tested,
on the processor and in the sizes at hand, before sentences share a batch: `blocks_agree` tests all
blocks, `widths_agree` each width of a block and some wider ones.
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.arithmetic.attention import KEYS, QUERIES, VECTOR, CpuMask, attend_without_gradient
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.layouts import PackedLinear
from regard.arithmetic.products import Products

BLOCKS = (4, 8, *range(16, 257, 16))
"""Sizes of blocks. A single row is multiplied by another kernel; many small blocks are slow."""
WIDTH = 8
"""Sources are padded to a multiple of this: few queries are multiplied by another kernel, too."""


class BlockedLinear(PackedLinear):
    """A packed layer that multiplies its rows in blocks.

    All blocks but the last have the largest size; the last one is filled up with zeros to the next
    size that is large enough.
    """

    def __call__(
        self, by: Any, x: Float[Tensor, "*batch inputs"], relu: bool = False
    ) -> Float[Tensor, "*batch outputs"]:
        """x W^T + b; with `relu`, 0 where that is negative."""
        *whole, last = x.reshape(-1, x.shape[-1]).split(BLOCKS[-1])
        fill = BLOCKS[bisect_left(BLOCKS, len(last))] - len(last)
        filled = F.pad(last, (0, 0, 0, fill)) if fill else last
        parts = [self.product(part) for part in (*whole, filled)]
        parts[-1] = parts[-1][: len(last)]
        y = torch.cat(parts) if whole else parts[0]
        y = y.view(*x.shape[:-1], y.shape[-1])
        return y.relu_() if relu else y


@torch.no_grad()
def blocks_agree(layers: Iterable[BlockedLinear], threads: Iterable[int]) -> bool:
    """Test whether a row comes out the same in each place of each block, with each thread count."""
    of_one_size = {layer.weight.shape: layer for layer in layers}.values()
    return all(_places_agree(layer, list(threads)) for layer in of_one_size)


def _places_agree(layer: BlockedLinear, threads: list[int]) -> bool:
    row, weight = (x.to(layer.weight.dtype) for x in _cancelling(*layer.weight.shape))
    like, outputs = PackedLinear(weight, layer.bias), []
    for count in threads:
        with _threads(count):
            outputs += [like.product(row.repeat(size, 1)) for size in BLOCKS]
    return all(torch.equal(y, outputs[0][:1].expand_as(y)) for y in outputs)


def _cancelling(outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
    """A row and a weight whose products cancel: the sum is the rounding of one order of adding.

    With usual numbers only the last bits would depend on the order, and bf16 hides those.
    """
    generator, half = torch.Generator().manual_seed(1), inputs // 2

    def signs(*shape: int) -> Tensor:
        return torch.randint(0, 2, shape, generator=generator) * 2.0 - 1

    large = signs(half) * torch.randint(0, 40, (half,), generator=generator).exp2()
    weight, order = signs(outputs, half), torch.randperm(2 * half, generator=generator)
    room = (0, inputs - 2 * half)
    row = F.pad(torch.cat([large, -large])[order], room)
    return row, F.pad(torch.cat([weight, weight], dim=1)[:, order], room)


@torch.no_grad()
def widths_agree(
    heads: int, d_k: int, d_v: int, threads: Iterable[int], queries: int | None
) -> bool:
    """Test whether attention to n keys is the same if more keys follow, in a batch and alone.

    There are `queries` queries or, if that is None, n of them, as in the encoder. All are fp32.
    """
    beyond = (2 * KEYS, 8 * KEYS) if queries else (QUERIES,)
    widths = [WIDTH, *range(VECTOR, KEYS + 1, VECTOR), *beyond]
    by, generator = Cpu(Products()), torch.Generator().manual_seed(1)
    query, key, value = (
        torch.randn(1, heads, widths[-1], d, generator=generator) for d in (d_k, d_k, d_v)
    )

    def outputs(own: list[int], wide: int) -> list[Tensor]:
        """The outputs of sentences with these widths, all in rows that are `wide`."""
        seen = torch.arange(wide) < torch.tensor(own)[:, None]
        q, k, v = (
            x[:, :, :length].expand(len(own), -1, -1, -1)
            for x, length in ((query, queries or wide), (key, wide), (value, wide))
        )
        together = attend_without_gradient(by, q, k, v, CpuMask(seen[:, None, None]), 0.0)
        return [y[:, : queries or n] for y, n in zip(together, own, strict=True)]

    alone = [outputs([n], n)[0] for n in widths]
    for count, wide in itertools.product(threads, widths):
        with _threads(count):
            together = outputs([n for n in widths if n <= wide], wide)
        if not all(map(torch.equal, together, alone)):  # the narrower ones come first
            return False
    return True


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
