"""Decoding in batches on a CPU: each sentence gets the same bits as if it were decoded alone.

`FewRows` decodes exactly, too, but only in fp32. This module is for weights in bf16 or int8, and
for variants of the model that `FewRows` cannot compute. If compiled loops cannot be used, or cannot
be kept on the disk, this module is for all models.

The result of a matrix product for one row may have other bits if there are more rows, because the
kernel may then add in another order. All other operations compute each number or each row by
itself, and `Int8Linear` adds integers, which is exact in any order. The remaining matrix products
are made as follows:

- A linear layer multiplies the rows of its input in blocks of fixed sizes (`BlockedLinear`).
- Attention multiplies in fp32, each sentence and head by itself. All sentences are padded to the
  number of keys of the longest sentence; the added keys only add zeros at the end of a sum. The
  terms of a sum are divided into groups of `attention.KEYS`, and the sums of the groups are added
  from left to right, so a group of zeros changes nothing.

These products rely on two properties that kernels do not promise, but that all measured kernels
have: a row has the same result at each position in each block, and zeros at the end of a group
change nothing. If `exact` is True, both properties are therefore tested on the processor, with the
sizes of the model, before sentences share a batch: `blocks_agree` tests every size of block;
`widths_agree` tests every padded number of keys up to `KEYS`, and some larger numbers.
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.arithmetic.attention import KEYS, QUERIES, VECTOR, CpuMask, attend_without_gradient
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.layouts import PackedLinear
from regard.arithmetic.products import Products
from regard.machine.threads import computing_with

BLOCKS = (4, 8, *range(16, 257, 16))
"""The possible numbers of rows of a block. A block has more than 1 row, because another kernel
multiplies a single row; it has up to 256 rows, because many small blocks are slow."""
WIDTH = 8
"""Padding rounds up the number of tokens of a source to a multiple of `WIDTH`, but not above the
number of positions of the model. PyTorch computes fewer queries than `WIDTH` by another kernel,
which may round differently. With `exact=False`, decoding does not pad sources in this way."""


class BlockedLinear(PackedLinear):
    """A layer, packed by oneDNN, that multiplies the rows of its input in blocks.

    All blocks except the last have the largest size of `BLOCKS`. The last block is padded with
    zeros to the smallest size of `BLOCKS` that has room for its rows.
    """

    def __call__(
        self, by: Any, x: Float[Tensor, "*batch inputs"], relu: bool = False
    ) -> Float[Tensor, "*batch outputs"]:
        """x W^T + b, or max(0, x W^T + b) with `relu`."""
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
    """Whether a row has the same result at every position in a block, for every size of a block.

    The test multiplies blocks of equal rows by a test weight, for each shape of the layers' weights
    and each number of threads. All rows of the results must be equal.
    """
    of_one_size, counts = {layer.weight.shape: layer for layer in layers}.values(), list(threads)
    return all(_places_agree(layer, counts) for layer in of_one_size)


def _places_agree(layer: BlockedLinear, threads: list[int]) -> bool:
    row, weight = (x.to(layer.weight.dtype) for x in _cancelling(*layer.weight.shape))
    like, outputs = PackedLinear(weight, layer.bias), []
    for count in threads:
        with computing_with(count):
            outputs += [like.product(row.repeat(size, 1)) for size in BLOCKS]
    return all(torch.equal(y, outputs[0][:1].expand_as(y)) for y in outputs)


def _cancelling(outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
    """A row, [inputs], and a weight, [outputs, inputs]; without rounding, their product would be 0.

    The computed product is a sum of rounding errors, which shows in which order numbers are added.
    With usual numbers, only the last bits of a sum depend on the order, and bf16 does not keep
    these bits.
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
    """Whether attention gives a sentence with n keys the same bits alone and in a batch.

    In the batch, masked keys follow the n keys. Outputs are computed in fp32 for several n,
    with each number of threads, and compared. `queries` is the number of queries; None means n, as
    in the encoder.
    """
    beyond = (2 * KEYS, 8 * KEYS) if queries else (QUERIES,)
    widths = [WIDTH, *range(VECTOR, KEYS + 1, VECTOR), *beyond]
    by, generator = Cpu(Products()), torch.Generator().manual_seed(1)
    query, key, value = (
        torch.randn(1, heads, widths[-1], d, generator=generator) for d in (d_k, d_k, d_v)
    )

    def outputs(own: list[int], wide: int) -> list[Tensor]:
        """Attention's output for each row; row i has own[i] keys, and is padded to `wide` keys."""
        seen = torch.arange(wide) < torch.tensor(own)[:, None]
        q, k, v = (
            x[:, :, :length].expand(len(own), -1, -1, -1)
            for x, length in ((query, queries or wide), (key, wide), (value, wide))
        )
        together = attend_without_gradient(by, q, k, v, CpuMask(seen[:, None, None]), 0.0)
        return [y[:, : queries or n] for y, n in zip(together, own, strict=True)]

    alone = [outputs([n], n)[0] for n in widths]
    for count, wide in itertools.product(threads, widths):
        with computing_with(count):
            together = outputs([n for n in widths if n <= wide], wide)
        if not all(map(torch.equal, together, alone)):  # both are in ascending order of width
            return False
    return True
