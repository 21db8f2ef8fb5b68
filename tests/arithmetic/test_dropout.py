"""Dropout is fair, and its masks follow from a seed where they are asked to."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from regard.arithmetic.dropout import drop, kept, masks_from


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_every_place_is_dropped_equally_often(dropout: float) -> None:
    torch.manual_seed(3)
    draws = torch.stack([kept(torch.empty(64), dropout) for _ in range(5000)])
    assert set(draws.unique().tolist()) == {0.0, 1.0}
    share = draws.mean(0)  # by position within the random words too
    assert (share - (1 - dropout)).abs().max() < 5 * (dropout * (1 - dropout) / 5000) ** 0.5


@pytest.mark.parametrize("dropout", [1 - 2**-17, 1 - 2**-20])
def test_nearly_all_may_be_dropped(dropout: float) -> None:
    torch.manual_seed(4)
    assert kept(torch.empty(5000), dropout).sum() <= 2


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


def mask() -> Tensor:
    return kept(torch.empty(7, 13), 0.5)


def test_masks_from_a_seed_are_the_same_anywhere() -> None:
    torch.manual_seed(6)
    plain = mask()
    with masks_from(1):
        first, second = mask(), mask()
    torch.manual_seed(6)
    with masks_from(1):
        again = mask()
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(mask).result()
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    # Another thread is not concerned, and PyTorch's generator stayed where it was.
    assert torch.equal(elsewhere, plain)


def test_masks_follow_pytorchs_generator_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), masks_from(1):
        _ = 1 // 0
    torch.manual_seed(7)
    after = mask()
    torch.manual_seed(7)
    assert torch.equal(after, mask())
