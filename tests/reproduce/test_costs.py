"""Costs of layers that are known: operations by hand, storages that are followed, exponents."""

import pytest
import torch

from regard.complexity import Sizes
from regard.reproduce import costs
from regard.reproduce.costs import exponent, operations, peak_memory, seconds
from regard.reproduce.layers import LAYERS

N, D, K, R = 37, 8, 3, 6


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ("self-attention", 4 * N * N * D),
        ("with projections", 4 * N * N * D + 8 * N * D * D),
        ("restricted", 4 * 39 * (3 * R // 2) * D),  # 13 blocks of 3, each sees 9 positions
        ("recurrent", 4 * N * D * D),
        ("convolutional", 2 * K * N * D * D),
        ("dilated", 2 * K * N * D * D),
        ("separable", 2 * K * N * D + 2 * N * D * D),
    ],
)
def test_operations_by_hand(layer: str, expected: int) -> None:
    """A multiply-add is two operations."""
    assert operations(layer, Sizes(N, D, K, R)) == expected


def test_memory_is_the_most_at_a_time() -> None:
    with costs._Living() as living:
        a = torch.ones(1000)
        b = a + 1
        view = b[:10]
        del a
        c = torch.zeros(500)
        del b, c
    assert living.now == 4000  # the view keeps b
    assert living.most == 8000
    assert len(view) == 10


def test_attention_keeps_n_squared_weights() -> None:
    small, large = (peak_memory("self-attention", Sizes(n, 4, 3, 4)) for n in (128, 256))
    assert 4 * 256**2 * 2 < large < 4 * 256**2 * 6
    assert large / small == pytest.approx(4, rel=0.1)


def test_time_is_measured() -> None:
    assert min(seconds("convolutional", Sizes(64, 8, 3, 4))) > 0


def test_exponent_of_a_power() -> None:
    assert exponent([1, 2, 4, 8], [3 * n**1.7 for n in (1, 2, 4, 8)]) == pytest.approx(1.7)


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_can_be_followed(layer: str) -> None:
    assert peak_memory(layer, Sizes(16, 4, 3, 4)) >= 4 * 16 * 4
