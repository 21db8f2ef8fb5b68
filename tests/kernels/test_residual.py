"""Add & Norm as one operation equals its three parts, values and gradients; dropout is fair."""

import pytest
import torch
from torch import nn

from regard.kernels.residual import add_norm, drop, kept

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
    torch.manual_seed(2)
    mask = kept(y, dropout) / (1 - dropout) if dropout else 1.0
    exact = norm(x + y * mask)
    torch.testing.assert_close(fast, exact)
    upstream = torch.randn_like(fast)
    for mine, theirs in zip(
        torch.autograd.grad(fast, inputs, upstream),
        torch.autograd.grad(exact, inputs, upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_without_gradient_it_is_the_same() -> None:
    x, y, norm = problem()
    with torch.no_grad():
        torch.testing.assert_close(add_norm(x, y, norm), norm(x + y))


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_every_place_is_dropped_equally_often(dropout: float) -> None:
    torch.manual_seed(3)
    draws = torch.stack([kept(torch.empty(64), dropout) for _ in range(5000)])
    assert set(draws.unique().tolist()) == {0.0, 1.0}
    share = draws.mean(0)  # by position within the random words too
    assert (share - (1 - dropout)).abs().max() < 5 * (dropout * (1 - dropout) / 5000) ** 0.5


def test_dropped_masks_are_independent() -> None:
    torch.manual_seed(4)
    draws = torch.stack([kept(torch.empty(16), 0.5) for _ in range(20000)])
    correlation = torch.corrcoef(draws.T) - torch.eye(16)
    assert correlation.abs().max() < 0.05


def test_drop_scales_what_it_keeps() -> None:
    torch.manual_seed(5)
    x = torch.ones(7, 11, requires_grad=True)
    dropped = drop(x, 0.2)
    assert set(dropped.unique().tolist()) <= {0.0, 1.25}
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    torch.testing.assert_close(gradient, dropped.detach())
