"""Training's products of 8 bits are those of the rounded matrices, and near those of the others."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.arithmetic import int8
from regard.arithmetic.cross_entropy import smoothed_cross_entropy
from regard.arithmetic.int8 import (
    Rounded,
    has_int8_training,
    int8_products,
    refuse_int8_training,
    rounded,
)
from regard.arithmetic.linear import linear
from regard.errors import RecipeError

pytestmark = pytest.mark.usefixtures("plain_or_loops")
needs_int8 = pytest.mark.skipif(not has_int8_training(), reason="no products of 8 bits here")

sizes = st.integers(1, 37)
seeds = st.integers(0, 2**31)
both = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


def exactly(matrix: Rounded) -> Tensor:
    """What the integers and scales stand for, in fp64."""
    return matrix.integers.double() * matrix.scale.double()[:, None]


def distance(found: Tensor, right: Tensor) -> float:
    found, right = found.detach().double(), right.detach().double()
    return float((found - right).norm() / (right.norm() + 0.1))


@settings(deadline=None, max_examples=30)
@given(seeds, sizes, sizes, st.booleans())
@both
def test_a_rows_largest_is_127_and_all_others_the_nearest(
    dtype: torch.dtype, seed: int, count: int, columns: int, scaled: bool
) -> None:
    torch.manual_seed(seed)
    x = torch.randn(count, columns).to(dtype) * 10 ** torch.randn(count, 1).to(dtype)
    factors = torch.rand(columns) + 0.1 if scaled else None
    found = rounded(x, factors)
    right = x.double() if factors is None else x.double() * factors.double()
    assert (found.integers.abs().amax(1) == 127).all()
    torch.testing.assert_close(found.scale.double(), right.abs().amax(1) / 127, rtol=1e-6, atol=0)
    assert ((exactly(found) - right).abs() <= found.scale.double()[:, None] * 0.501).all()


def test_rows_that_do_not_lie_together_and_rows_of_zeros() -> None:
    torch.manual_seed(1)
    x = torch.randn(4, 3, 6).transpose(0, 1)
    x[1, 2] = 0
    found = rounded(x)
    together = rounded(x.contiguous().view(12, 6))
    assert torch.equal(found.integers, together.integers)
    assert torch.equal(found.scale, together.scale)
    assert not found.integers[6].any()


@needs_int8
@settings(deadline=None, max_examples=30)
@given(seeds, sizes, sizes, st.lists(st.integers(0, 5), max_size=3), st.booleans())
@both
def test_a_layer_and_its_gradients_are_those_of_the_rounded_matrices(
    dtype: torch.dtype, seed: int, inputs: int, outputs: int, batch: list[int], relu: bool
) -> None:
    torch.manual_seed(seed)
    x = torch.randn(*batch, inputs, dtype=dtype, requires_grad=True)
    weight = torch.randn(outputs, inputs, dtype=dtype, requires_grad=True)
    bias = torch.randn(outputs, dtype=dtype, requires_grad=True)
    upstream = torch.randn(*batch, outputs, dtype=dtype)
    with int8_products():
        found = linear(x, weight, bias, relu)
    gradients = torch.autograd.grad(found, (x, weight, bias), upstream)

    near = 1e-5 if dtype == torch.float32 else 0.02
    matrix = exactly(rounded(weight))
    right = exactly(rounded(x)) @ matrix.T + bias.double()
    right = right.relu() if relu else right
    assert found.dtype == dtype
    assert found.shape == upstream.shape
    assert distance(found.view_as(right), right) < near

    passed = (upstream * (found > 0) if relu else upstream).reshape(-1, outputs)
    times_scale = rounded(passed, rounded(weight).scale)
    d_x = exactly(times_scale) @ rounded(weight).integers.double()
    d_weight = passed.double().T @ x.detach().double().reshape(-1, inputs)
    for mine, exact in zip(gradients, (d_x, d_weight, passed.double().sum(0)), strict=True):
        assert mine.dtype == dtype
        assert distance(mine.view_as(exact), exact) < near


@needs_int8
@both
def test_rounding_moves_a_wide_layer_by_hundredths(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    x = torch.randn(50, 512, dtype=dtype, requires_grad=True)
    weight, bias = torch.randn(300, 512).to(dtype), torch.randn(300).to(dtype)
    upstream = torch.randn(50, 300, dtype=dtype)
    right = F.linear(x, weight, bias)
    with int8_products():
        found = linear(x, weight, bias)
    assert 1e-3 < distance(found, right) < 0.02
    exact, near = (torch.autograd.grad(y, x, upstream)[0] for y in (right, found))
    assert 1e-3 < distance(near, exact) < 0.02


@needs_int8
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("relu", [False, True])
def test_what_is_no_number_stays_none(wrong: float, relu: bool) -> None:
    """A training that diverges is noticed."""
    x, weight = torch.randn(3, 8), torch.randn(5, 8)
    x[1, 2] = wrong
    with int8_products():
        found = linear(x, weight, torch.zeros(5), relu)
    assert not found[1].isfinite().all()
    assert found[[0, 2]].isfinite().all()


@needs_int8
@both
def test_the_loss_stays_near_and_so_do_its_gradients(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    states = torch.randn(200, 64, dtype=dtype, requires_grad=True)
    embedding = (torch.randn(90, 64) / 8).to(dtype).requires_grad_()
    labels = torch.randint(0, 90, (200,))
    inputs = (states, embedding)
    smoothed, plain = smoothed_cross_entropy(*inputs, labels, 0.1)
    with int8_products():
        near, near_plain = smoothed_cross_entropy(*inputs, labels, 0.1)
    assert near_plain != plain
    assert float(near_plain) == pytest.approx(float(plain), rel=5e-3)
    for mine, right in zip(
        torch.autograd.grad(near, inputs), torch.autograd.grad(smoothed, inputs), strict=True
    ):
        assert distance(mine, right) < 0.03


def test_only_in_there_and_only_in_this_thread_are_products_rounded() -> None:
    assert not int8.in_int8()
    with int8_products(), ThreadPoolExecutor(1) as pool:
        assert int8.in_int8()
        assert not pool.submit(int8.in_int8).result()
    assert not int8.in_int8()


def test_where_products_are_not_exact_or_there_is_a_gpu_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(int8, "has_int8_training", lambda: True)
    refuse_int8_training(torch.device("cpu"))
    with pytest.raises(RecipeError, match="int8: here are no exact products"):
        refuse_int8_training(torch.device("cuda"))
    monkeypatch.setattr(int8, "has_int8_training", lambda: False)
    with pytest.raises(RecipeError, match="set it to bf16, fp32 or auto"):
        refuse_int8_training(torch.device("cpu"))


def test_products_that_overflow_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As two of 127 x 255 do in 16 bits."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch, "_int_mm", lambda a, b: a.int() @ b.int())
    assert has_int8_training.__wrapped__()
    monkeypatch.setattr(torch, "_int_mm", lambda a, b: (a.int() @ b.int()).clamp(max=32767))
    assert not has_int8_training.__wrapped__()


def test_there_are_none_but_on_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert not has_int8_training.__wrapped__()
