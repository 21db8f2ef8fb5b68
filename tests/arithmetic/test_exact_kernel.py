"""Rows in blocks are what they are alone, and kernels for which that does not hold are noticed."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.arithmetic import attention
from regard.arithmetic.exact import BLOCKS, BlockedLinear, blocks_agree, widths_agree
from regard.arithmetic.packed import PackedLinear, can_pack

pytestmark = pytest.mark.skipif(not can_pack(torch.float32), reason="oneDNN is not there")
DTYPES = [dtype for dtype in (torch.float32, torch.bfloat16) if can_pack(dtype)]


def layer(dtype: torch.dtype = torch.float32, inputs: int = 37, outputs: int = 53) -> BlockedLinear:
    torch.manual_seed(1)
    return BlockedLinear(torch.randn(outputs, inputs).to(dtype), torch.randn(outputs).to(dtype))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 600), st.booleans(), st.integers(0, 2**31))
def test_a_blocked_layer_is_the_layer(rows: int, bias: bool, seed: int) -> None:
    torch.manual_seed(seed)
    x, weight = torch.randn(rows, 1, 11), torch.randn(7, 11)
    b = torch.randn(7) if bias else None
    torch.testing.assert_close(BlockedLinear(weight, b)(x), F.linear(x, weight, b))


def test_the_layer_sees_blocks_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, product = set(), PackedLinear.forward

    def heard(self: PackedLinear, x: torch.Tensor) -> torch.Tensor:
        seen.add(len(x))
        return product(self, x)

    monkeypatch.setattr(PackedLinear, "forward", heard)
    some = layer()
    for rows in range(1, 3 * BLOCKS[-1], 7):
        some(torch.randn(rows, 37))
    assert seen <= set(BLOCKS)
    assert len(seen) > 10


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_is_the_same_among_any_others(dtype: torch.dtype) -> None:
    some = layer(dtype, 2048, 64)  # where one row alone is another kernel's work, in fp32
    if not blocks_agree([some], [1]):
        pytest.skip("not on this processor")
    x = torch.randn(300, 2048).to(dtype)
    alone = torch.cat([some(row[None]) for row in x])
    assert torch.equal(some(x), alone)
    assert torch.equal(some(x.flip(0)), alone.flip(0))
    assert torch.equal(some(x[7:20]), alone[7:20])


@pytest.mark.parametrize("where", [(16, 3), (256, 255)])
def test_a_block_that_differs_in_one_place_is_noticed(
    where: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    size, place = where
    product = PackedLinear.forward

    def off(self: PackedLinear, x: torch.Tensor) -> torch.Tensor:
        y = product(self, x)
        if len(x) == size:
            y[place] = y[place].nextafter(torch.tensor(torch.inf))
        return y

    layers = [layer(), layer(inputs=41)]
    before = blocks_agree(layers, [1])
    monkeypatch.setattr(PackedLinear, "forward", off)
    assert not blocks_agree(layers, [1])
    assert before


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_that_adds_in_another_order_is_noticed(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bf16, where of usual numbers one in thousands comes out otherwise."""

    def product(self: PackedLinear, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight.to_dense().float()
        order = torch.arange(37).flip(0) if len(x) == 32 else torch.arange(37)
        y = torch.zeros(len(x), 53)
        for i in order:
            y += x[:, i : i + 1].float() * weight[:, i]
        return y.to(dtype)

    some = layer(dtype)
    before = blocks_agree([some], [1])
    monkeypatch.setattr(PackedLinear, "forward", product)
    assert not blocks_agree([some], [1])
    assert before


@pytest.mark.parametrize("queries", [None, 1, 4])
@pytest.mark.parametrize("differs", ["wide", "many"])
def test_attention_that_looks_at_what_it_may_not_is_noticed(
    differs: str, queries: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, bmm = widths_agree(2, 32, 32, [1], queries), torch.bmm

    def off(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        there = b.shape[1] == attention.KEYS if differs == "wide" else len(a) == 6
        return bmm(a, b) * (1 + 2e-7 * there)

    monkeypatch.setattr(torch, "bmm", off)
    assert not widths_agree(2, 32, 32, [1], queries)
    assert before


def test_the_trial_leaves_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    assert blocks_agree([layer()], [before + 1])
    assert widths_agree(2, 32, 32, [before + 1], queries=1)
    assert torch.get_num_threads() == before
