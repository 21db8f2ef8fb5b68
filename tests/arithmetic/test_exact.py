"""Rows in blocks are what they are alone, and kernels for which that does not hold are noticed."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from arithmetic.cases import BF16, D_K, D_V, FP32, HEADS, INT8, ONEDNN, Layers, skip_without
from regard.arithmetic import attention
from regard.arithmetic.choose import can_pack
from regard.arithmetic.exact import BLOCKS, BlockedLinear, blocks_agree, widths_agree
from regard.arithmetic.inference import ExactInference
from regard.arithmetic.layouts import Int8Linear, LaidOut, PackedLinear
from regard.arithmetic.plain import PLAIN

pytestmark = pytest.mark.skipif(not can_pack(FP32), reason="no oneDNN on this machine")
DTYPES = [dtype for dtype in (FP32, BF16) if can_pack(dtype)]
BY = None
"""The arithmetic for which layers multiply: these do not ask it for anything."""


def layer(dtype: torch.dtype = FP32, inputs: int = 37, outputs: int = 53) -> BlockedLinear:
    torch.manual_seed(1)
    return BlockedLinear(torch.randn(outputs, inputs).to(dtype), torch.randn(outputs).to(dtype))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 600), st.integers(0, 2**31))
def test_any_number_of_rows_is_multiplied(rows: int, seed: int) -> None:
    torch.manual_seed(seed)
    x, weight, bias = torch.randn(rows, 1, 11), torch.randn(7, 11), torch.randn(7)
    right = torch.nn.functional.linear(x, weight, bias)
    torch.testing.assert_close(BlockedLinear(weight, bias)(BY, x), right)


def test_only_blocks_are_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, product = set(), PackedLinear.product

    def noting(self: PackedLinear, x: Tensor) -> Tensor:
        seen.add(len(x))
        return product(self, x)

    monkeypatch.setattr(PackedLinear, "product", noting)
    some = layer()
    for rows in range(1, 3 * BLOCKS[-1], 7):
        some(BY, torch.randn(rows, 37))
    assert seen <= set(BLOCKS)
    assert len(seen) > 10


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_among_any_others(dtype: torch.dtype) -> None:
    some = layer(dtype, 2048, 64)  # for one row alone of these, fp32 has another kernel
    if not blocks_agree([some], [1]):
        pytest.skip("not on this processor")
    x = torch.randn(300, 2048).to(dtype)
    alone = torch.cat([some(BY, row[None]) for row in x])
    assert torch.equal(some(BY, x), alone)
    assert torch.equal(some(BY, x.flip(0)), alone.flip(0))
    assert torch.equal(some(BY, x[7:20]), alone[7:20])


@pytest.mark.parametrize(("size", "place"), [(16, 3), (256, 255)])
def test_a_place_of_a_block_that_differs_is_noticed(
    size: int, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = PackedLinear.product

    def off(self: PackedLinear, x: Tensor) -> Tensor:
        y = product(self, x)
        if len(x) == size:
            y[place] = y[place].nextafter(torch.tensor(torch.inf))
        return y

    layers = [layer(), layer(inputs=41)]
    before = blocks_agree(layers, [1])
    monkeypatch.setattr(PackedLinear, "product", off)
    assert not blocks_agree(layers, [1])
    assert before


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_that_adds_in_another_order_is_noticed(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in bf16, where the order changes one in thousands of usual numbers."""

    def product(self: PackedLinear, x: Tensor) -> Tensor:
        weight = self.weight.to_dense().float()
        order = torch.arange(37).flip(0) if len(x) == 32 else torch.arange(37)
        y = torch.zeros(len(x), 53)
        for i in order:
            y += x[:, i : i + 1].float() * weight[:, i]
        return y.to(dtype)

    some = layer(dtype)
    before = blocks_agree([some], [1])
    monkeypatch.setattr(PackedLinear, "product", product)
    assert not blocks_agree([some], [1])
    assert before


@pytest.mark.parametrize("queries", [None, 1, 4])
@pytest.mark.parametrize("differs", ["wide", "many"])
def test_attention_that_looks_at_what_it_may_not_is_noticed(
    differs: str, queries: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, bmm = widths_agree(2, 32, 32, [1], queries), torch.bmm

    def off(a: Tensor, b: Tensor) -> Tensor:
        there = b.shape[1] == attention.KEYS if differs == "wide" else len(a) == 6
        return bmm(a, b) * (1 + 2e-7 * there)

    monkeypatch.setattr(torch, "bmm", off)
    assert not widths_agree(2, 32, 32, [1], queries)
    assert before


def test_the_test_leaves_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    assert blocks_agree([layer()], [before + 1])
    assert widths_agree(2, 32, 32, [before + 1], queries=1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("layout", [BlockedLinear, Int8Linear])
def test_batches_agree_where_layers_and_attention_do(
    layout: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without(ONEDNN, *[INT8] * (layout is Int8Linear))
    layers, asked = Layers(), []

    def widths(*given: Any, queries: int | None) -> bool:
        asked.append(queries)
        return queries != 5

    monkeypatch.setattr("regard.arithmetic.inference.widths_agree", widths)
    by = ExactInference(LaidOut(layers, layers.tokens, layout), {(HEADS, D_K, D_V)})
    assert by.batches_agree(4, iter([1]))
    assert asked == [None, 1, 4]
    assert not by.batches_agree(5, [1])


def test_batches_of_other_arithmetics_do_not_agree() -> None:
    assert not PLAIN.batches_agree(4, [1])
