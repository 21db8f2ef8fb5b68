"""Training's products of 8 bits are those of the rounded matrices."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from arithmetic.cases import BF16, FP32, NEAR, NUMBA, SIGNED_INT8, skip_without, training
from arithmetic.holding import assert_near
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.int8 import Int8Products, Rounded, has_int8_training
from regard.arithmetic.products import Products

seeds, sizes = st.integers(0, 2**31), st.integers(1, 37)
both = pytest.mark.parametrize("dtype", [FP32, BF16])


@pytest.fixture(scope="module", params=[False, True], ids=["operations", "loops"])
def by(request: pytest.FixtureRequest) -> Cpu:
    skip_without(SIGNED_INT8, *[NUMBA] * request.param)
    made: Cpu = training(Int8Products(), request.param)
    return made


def exactly(matrix: Rounded) -> Tensor:
    """What the integers and the scales stand for, in fp64."""
    return matrix.integers.double() * matrix.scale.double()[:, None]


@settings(deadline=None, max_examples=30)
@given(seeds, sizes, sizes, st.booleans())
@both
def test_a_rows_largest_is_127_and_all_others_the_nearest(
    by: Cpu, dtype: torch.dtype, seed: int, count: int, columns: int, scaled: bool
) -> None:
    torch.manual_seed(seed)
    x = torch.randn(count, columns).to(dtype) * 10 ** torch.randn(count, 1).to(dtype)
    factors = torch.rand(columns) + 0.1 if scaled else None
    found = by.round_rows(x, factors)
    right = x.double() if factors is None else x.double() * factors.double()
    assert (found.integers.abs().amax(1) == 127).all()
    torch.testing.assert_close(found.scale.double(), right.abs().amax(1) / 127, rtol=1e-6, atol=0)
    assert ((exactly(found) - right).abs() <= found.scale.double()[:, None] * 0.501).all()


def test_rows_that_do_not_lie_together_and_rows_of_zeros(by: Cpu) -> None:
    torch.manual_seed(1)
    x = torch.randn(4, 3, 6).transpose(0, 1)
    x[1, 2] = 0
    found, together = by.round_rows(x), by.round_rows(x.contiguous().view(12, 6))
    assert torch.equal(found.integers, together.integers)
    assert torch.equal(found.scale, together.scale)
    assert not found.integers[6].any()


@settings(deadline=None, max_examples=30)
@given(seeds, sizes, sizes, st.lists(st.integers(0, 5), max_size=3), st.booleans())
@both
def test_a_layer_and_its_gradients_are_those_of_the_rounded_matrices(
    by: Cpu, dtype: torch.dtype, seed: int, inputs: int, outputs: int, batch: list[int], relu: bool
) -> None:
    torch.manual_seed(seed)
    x = torch.randn(*batch, inputs, dtype=dtype, requires_grad=True)
    layer = nn.Linear(inputs, outputs, dtype=dtype)
    upstream = torch.randn(*batch, outputs, dtype=dtype)
    found = by.linear(x, layer, relu=relu)
    gradients = torch.autograd.grad(found, (x, layer.weight, layer.bias), upstream)

    weight = by.round_rows(layer.weight)
    right = exactly(by.round_rows(x)) @ exactly(weight).T + layer.bias.double()
    right = right.relu() if relu else right
    assert found.dtype == dtype
    assert found.shape == upstream.shape
    assert_near(found.view_as(right), right, NEAR[dtype])

    passed = (upstream * (found > 0) if relu else upstream).reshape(-1, outputs)
    d_x = exactly(by.round_rows(passed, weight.scale)) @ weight.integers.double()
    d_weight = passed.double().T @ x.detach().double().reshape(-1, inputs)
    for gradient, due in zip(gradients, (d_x, d_weight, passed.double().sum(0)), strict=True):
        assert gradient.dtype == dtype
        assert_near(gradient.view_as(due), due, NEAR[dtype])


def test_states_and_gradients_and_the_logits_of_the_loss_are_rounded(by: Cpu) -> None:
    torch.manual_seed(2)
    x, layer = torch.randn(50, 67, requires_grad=True), nn.Linear(67, 31)
    found, right = by.linear(x, layer), layer(x)
    upstream = torch.randn_like(found)
    for mine, other in (
        (found, right),
        [torch.autograd.grad(y, x, upstream)[0] for y in (found, right)],
    ):
        assert 1e-3 < (mine - other).norm() / other.norm() < 0.02
    labels = torch.randint(1, 31, (50,))
    (_, mine), (_, other) = (
        some.cross_entropy(x, layer.weight, labels, 0.1) for some in (by, training(Products()))
    )
    assert mine != other


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("relu", [False, True])
def test_a_row_with_a_number_that_is_not_finite_is_not_finite(
    by: Cpu, wrong: float, relu: bool
) -> None:
    """Training that diverges has to be noticed."""
    torch.manual_seed(1)
    x, layer = torch.randn(3, 8), nn.Linear(8, 5)
    x[1, 2] = wrong
    found = by.linear(x, layer, relu=relu)
    assert not found[1].isfinite().all()
    assert found[[0, 2]].isfinite().all()


def test_products_that_overflow_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products of 127 x 255 do not fit into 16 bits."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch, "_int_mm", lambda a, b: a.int() @ b.int())
    assert has_int8_training.__wrapped__()
    monkeypatch.setattr(torch, "_int_mm", lambda a, b: (a.int() @ b.int()).clamp(max=32767))
    assert not has_int8_training.__wrapped__()


def test_only_x86_has_fast_products_of_8_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert not has_int8_training.__wrapped__()
