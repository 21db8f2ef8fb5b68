"""The fast attention equals equation (1): values and gradients, masked rows included."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.arithmetic import attention as kernel
from regard.arithmetic.attention import Mask, attend
from regard.attention import attention

pytestmark = pytest.mark.usefixtures("plain_or_loops")

ROWS, HEADS, D_K, D_V = 3, 2, 5, 7


def problem(seed: int, queries: int, keys: int, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_()

    mask = torch.rand(ROWS, 1, queries, keys, generator=generator) < 0.6
    mask[1, :, 0] = False  # one query that may attend nowhere
    tensors = (
        random(ROWS, HEADS, queries, D_K),
        random(ROWS, HEADS, keys, D_K),
        random(ROWS, HEADS, keys, D_V),
    )
    return tensors, mask, random(ROWS, HEADS, queries, D_V).detach()


def equation(query, key, value, mask):
    return attention(query, key, value, mask.allowed)[0]


def with_gradients(function, tensors, mask, upstream):
    output = function(*tensors, Mask(mask))
    return output, torch.autograd.grad(output, tensors, upstream)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 19), st.integers(1, 37))
def test_fast_attention_is_the_equation(seed: int, queries: int, keys: int) -> None:
    tensors, mask, upstream = problem(seed, queries, keys, torch.float32)
    fast, fast_gradients = with_gradients(attend, tensors, mask, upstream)
    exact, exact_gradients = with_gradients(equation, tensors, mask, upstream)
    torch.testing.assert_close(fast, exact, atol=2e-6, rtol=1e-5)
    for mine, theirs in zip(fast_gradients, exact_gradients, strict=True):
        torch.testing.assert_close(mine, theirs, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masks", [ROWS, 1])
def test_long_rows_in_parts_give_the_same(masks: int, dtype, monkeypatch) -> None:
    queries, keys = 53, 37  # row by row, in parts of 16, 16, 16 and 5 queries
    tensors, mask, _ = problem(2, queries, keys, dtype)
    mask[:, :, 20] = False
    mask = Mask(mask[:masks])
    products, bmm = [], torch.bmm

    def counted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = bmm(a, b)
        products.append(product.numel())
        return product

    with torch.no_grad():
        whole = attend(*tensors, mask)
        monkeypatch.setattr(kernel, "AT_ONCE", 100)
        monkeypatch.setattr(torch, "bmm", counted)
        parts = attend(*tensors, mask)
    assert max(products) < HEADS * queries * keys / 2
    torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize("function", [attend, equation])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_query_that_may_attend_nowhere_gives_zeros_and_finite_gradients(function, dtype) -> None:
    tensors, mask, upstream = problem(1, 3, 11, dtype)
    output, gradients = with_gradients(function, tensors, mask, upstream)
    assert (output[1, :, 0] == 0).all()
    assert (output[0, :, 0] != 0).any()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][1, :, 0] == 0).all()


def test_bf16_stays_near_fp64() -> None:
    tensors, mask, upstream = problem(2, 13, 29)
    exact, exact_gradients = with_gradients(equation, tensors, mask, upstream)
    half = tuple(t.detach().bfloat16().requires_grad_() for t in tensors)
    fast, fast_gradients = with_gradients(attend, half, mask, upstream.bfloat16())
    for mine, theirs in zip((fast, *fast_gradients), (exact, *exact_gradients), strict=True):
        assert (mine - theirs).norm() / theirs.norm() < 0.01


def test_dropout_keeps_the_expectation_and_drops_the_stated_share() -> None:
    torch.manual_seed(3)
    keys = 64
    query, key = torch.zeros(1, 1, 1, D_K), torch.zeros(1, 1, keys, D_K)
    value = torch.eye(keys)[None, None]  # the output is then the weights themselves
    mask = torch.ones(1, 1, 1, keys, dtype=torch.bool)
    drawn = torch.stack([attend(query, key, value, Mask(mask), dropout=0.3) for _ in range(2000)])
    kept = drawn > 0
    assert abs(kept.float().mean() - 0.7) < 0.01
    torch.testing.assert_close(drawn[kept], torch.full_like(drawn[kept], 1 / keys / 0.7))


def test_dropout_has_the_gradient_of_the_weights_it_kept() -> None:
    tensors, mask, upstream = problem(4, 5, 17, torch.float32)

    def objective(scale: float) -> torch.Tensor:
        torch.manual_seed(5)  # the same weights dropped each time
        moved = tuple(t + scale * torch.ones_like(t) * 0.5 for t in tensors)
        return (attend(*moved, Mask(mask), dropout=0.4) * upstream).sum()

    total = sum(g.sum() * 0.5 for g in torch.autograd.grad(objective(0.0), tensors))
    step = 1e-2
    measured = (objective(step) - objective(-step)) / (2 * step)
    torch.testing.assert_close(total, measured.detach(), atol=2e-2, rtol=2e-2)
