"""Attention without gradients computes long rows in parts: all scores are never in memory."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from arithmetic.cases import BF16, D_K, D_V, FP32, HEADS, NEAR, NUMBA, inference, skip_without
from arithmetic.holding import assert_near
from regard.arithmetic.attention import QUERIES, SCORES_AT_ONCE
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import Products


class Sizes(TorchDispatchMode):
    """The number of entries of each batched matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(
        self, operation: Any, types: Any, given: Any = (), options: Any = None
    ) -> Any:
        result = operation(*given, **(options or {}))
        if operation is torch.ops.aten.bmm.default:
            self.sizes.append(result.numel())
        return result


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize(("rows", "masks", "queries"), [(3, 1, 7), (3, 3, 1), (71, 71, 7)])
def test_long_rows(rows: int, masks: int, queries: int, dtype: torch.dtype, loops: bool) -> None:
    """One of the queries may attend nowhere."""
    skip_without(*[NUMBA] * loops)
    torch.manual_seed(1)
    queries, keys = QUERIES + queries, 149
    query, key, value = (
        torch.randn(rows, HEADS, *shape).to(dtype)
        for shape in ((queries, D_K), (keys, D_K), (keys, D_V))
    )
    allowed = torch.rand(masks, 1, queries, keys) < 0.6
    allowed[:, :, 20] = False
    by = inference(Products(), loops)
    with torch.no_grad(), Sizes() as products:
        found = by.attend(query, key, value, by.mask(allowed))
    right = PLAIN.attend(*(x.double() for x in (query, key, value)), PLAIN.mask(allowed))
    assert_near(found, right, NEAR[dtype])
    assert not found[:, :, 20].any()
    assert len(products.sizes) > 4
    assert max(products.sizes) <= 1.1 * SCORES_AT_ONCE  # keys are padded
