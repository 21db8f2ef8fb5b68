"""Inference on a CPU, without gradients."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from regard.arithmetic.attention import VECTOR, CpuMask, attend_without_gradient
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.exact import BlockedLinear, blocks_agree, widths_agree
from regard.arithmetic.layouts import LaidOut
from regard.arithmetic.plain import Plain
from regard.arithmetic.products import Products
from regard.cache import Cache
from regard.equations import Mask


class Inference(Cpu):
    """Computes every equation without gradients.

    Keys and values are cached and multiplied in the precision `keep_in`; None means the precision
    that they have.
    """

    learning = False

    def __init__(self, products: Products, keep_in: torch.dtype | None = None):
        super().__init__(products)
        self.keep_in = keep_in

    def cache(self, keys: Tensor, values: Tensor) -> Cache:
        """A cache whose number of slots, used and unused, is a multiple of `VECTOR`."""
        return Cache(self._kept(keys), self._kept(values), VECTOR)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0
    ) -> Tensor:
        """Equation (1), in parts, so that the scores of long rows are never all in memory."""
        assert isinstance(mask, CpuMask)
        key, value = self._kept(key), self._kept(value)
        return attend_without_gradient(self, query, key, value, mask, dropout)

    def _kept(self, x: Tensor) -> Tensor:
        return x if self.keep_in is None else x.to(self.keep_in)

    add_norm = Plain.add_norm  # `Cpu.add_norm` defines a gradient, which is not needed here
    lstm = Plain.lstm  # `Fused.lstm` reads weights that `products` may have deleted from layers


class ExactInference(Inference):
    """Inference in which a sentence decodes to the same bits in any batch.

    This holds on processors on which `batches_agree` returns True. `sizes` has the sizes of the
    model's attentions, each as (heads, d_k, d_v).
    """

    def __init__(self, products: LaidOut, sizes: Iterable[tuple[int, int, int]]):
        super().__init__(products, torch.float32)
        self._layouts, self._sizes = products.layouts.values(), tuple(sizes)

    def batches_agree(self, beam: int, threads: Iterable[int]) -> bool:
        """Whether linear layers and attention of the model's sizes give the same bits in any batch.

        Both are tested with each number of threads; attention is tested with as many queries as
        keys, with 1 query and with `beam` queries. 8-bit layers are exact, and are not tested.
        """
        threads = list(threads)
        blocked = [layout for layout in self._layouts if isinstance(layout, BlockedLinear)]
        return blocks_agree(blocked, threads) and all(
            widths_agree(*sizes, threads, queries=n)
            for sizes in self._sizes
            for n in (None, 1, beam)
        )
