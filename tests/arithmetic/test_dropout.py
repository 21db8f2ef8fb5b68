"""The masks of dropout are fair, and follow from the generator that an arithmetic has."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from arithmetic.cases import NUMBA, skip_without, training
from regard.arithmetic.attention import CpuMask
from regard.arithmetic.dropout import keep_mask
from regard.arithmetic.products import Products


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_every_place_is_dropped_equally_often(dropout: float) -> None:
    torch.manual_seed(3)
    draws = torch.stack([keep_mask(torch.empty(61), dropout, None) for _ in range(5000)])
    assert set(draws.unique().tolist()) == {0.0, 1.0}
    share = draws.mean(0)  # by position within the random words too
    assert (share - (1 - dropout)).abs().max() < 5 * (dropout * (1 - dropout) / 5000) ** 0.5


@pytest.mark.parametrize("dropout", [1 - 2**-17, 1 - 2**-20])
def test_nearly_all_may_be_dropped(dropout: float) -> None:
    torch.manual_seed(4)
    assert keep_mask(torch.empty(5000), dropout, None).sum() <= 2


def test_elements_are_dropped_independently() -> None:
    torch.manual_seed(4)
    draws = torch.stack([keep_mask(torch.empty(16), 0.5, None) for _ in range(20000)])
    correlation = torch.corrcoef(draws.T) - torch.eye(16)
    assert correlation.abs().max() < 0.05


@pytest.mark.parametrize("loops", [False, True])
def test_masks_follow_from_the_generator_of_the_arithmetic(loops: bool) -> None:
    """Whatever PyTorch's own generator draws, and in any thread."""
    skip_without(*[NUMBA] * loops)
    norm, x = nn.LayerNorm(13), torch.randn(7, 13)
    query, mask = torch.randn(1, 1, 7, 13), CpuMask(torch.ones(1, 1, 1, 7, dtype=torch.bool))

    def computed(seed: int) -> list[Tensor]:
        by = training(Products(), loops, torch.Generator().manual_seed(seed))
        return [
            by.drop(x, 0.5),
            by.add_norm(x, x, norm, 0.5).detach(),
            by.attend(query, query, query, mask, 0.5),
        ]

    before = torch.get_rng_state()
    first = computed(1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(computed, 1).result()
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, computed(2)))
