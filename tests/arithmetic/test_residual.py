"""Add & Norm as one operation equals its three parts, values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.arithmetic.residual import add_norm

pytestmark = pytest.mark.usefixtures("plain_or_loops")

D_MODEL = 13


def problem(dtype: torch.dtype = torch.float32):
    torch.manual_seed(1)
    x, y = (torch.randn(3, 5, D_MODEL).to(dtype).requires_grad_() for _ in "xy")
    norm = nn.LayerNorm(D_MODEL, eps=1e-6)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return x, y, norm.to(dtype)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_equals_norm_of_the_sum(dropout: float) -> None:
    x, y, norm = problem()
    inputs = (x, y, norm.weight, norm.bias)
    torch.manual_seed(2)
    fast = add_norm(x, y, norm, dropout)
    d_y = torch.autograd.grad(fast, y, torch.randn_like(fast), retain_graph=True)[0]
    exact = norm(x + y * (d_y != 0) / (1 - dropout))  # what has no gradient was dropped
    torch.testing.assert_close(fast, exact)
    upstream = torch.randn_like(fast)
    for mine, theirs in zip(
        torch.autograd.grad(fast, inputs, upstream),
        torch.autograd.grad(exact, inputs, upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_bf16_stays_near_fp64(dropout: float) -> None:
    x, y, norm = problem(torch.bfloat16)
    inputs = (x, y, norm.weight, norm.bias)
    fast, upstream = add_norm(x, y, norm, dropout), torch.randn(3, 5, D_MODEL).bfloat16()
    found = torch.autograd.grad(fast, inputs, upstream)
    exact = [t.detach().double().requires_grad_() for t in inputs]
    total = exact[0] + exact[1] * (found[1] != 0) / (1 - dropout)
    expected = F.layer_norm(total, (D_MODEL,), *exact[2:], eps=1e-6)
    gradients = torch.autograd.grad(expected, exact, upstream.double())
    for mine, right in zip((fast, *found), (expected, *gradients), strict=True):
        assert mine.dtype == torch.bfloat16
        assert (mine.double() - right).norm() < 0.02 * right.norm()


def test_without_gradient_it_is_the_same() -> None:
    x, y, norm = problem()
    with torch.no_grad():
        torch.testing.assert_close(add_norm(x, y, norm), norm(x + y))
