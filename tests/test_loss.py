"""§5.4 by hand."""

import math

import pytest
import torch

from regard.loss import consistency_loss, perplexity, smoothed_loss


def test_smoothing_spreads_over_every_entry_the_right_one_included() -> None:
    # p = (1/2, 1/4, 1/4), as logits, which need not be normalised; label 1; epsilon 0.3 -> target
    # (0.1, 0.8, 0.1)
    logits = 5 + torch.tensor([[0.5, 0.25, 0.25]]).log()
    smoothed, plain = smoothed_loss(logits, torch.tensor([1]), 0.3)
    assert float(plain) == pytest.approx(math.log(4))
    by_hand = 0.1 * math.log(2) + 0.8 * math.log(4) + 0.1 * math.log(4)
    assert float(smoothed) == pytest.approx(by_hand)


def test_padding_counts_nothing_and_losses_are_sums() -> None:
    logits = torch.randn(3, 5)
    one = smoothed_loss(logits[:1], torch.tensor([2]), 0.1)
    padded = smoothed_loss(logits, torch.tensor([2, 0, 0]), 0.1)
    twice = smoothed_loss(logits[:1].repeat(2, 1), torch.tensor([2, 2]), 0.1)
    for single, with_padding, double in zip(one, padded, twice, strict=True):
        assert float(with_padding) == pytest.approx(float(single))
        assert float(double) == pytest.approx(2 * float(single))


def test_two_passes_have_the_mean_loss_and_half_the_mean_of_both_divergences() -> None:
    # p = (1/2, 1/2), q = (1/4, 3/4); the second label is padding, where p and q differ most.
    p, q = ([[a, 1 - a], [b, 1 - b]] for a, b in ((0.5, 0.1), (0.25, 0.9)))
    first, second = (torch.tensor(one).log() for one in (p, q))
    smoothed, plain = consistency_loss(first, second, torch.tensor([1, 0]), 0.0, weight=3.0)
    mean = (math.log(2) + math.log(4 / 3)) / 2
    p_from_q = math.log(2) / 2 + math.log(2 / 3) / 2
    q_from_p = math.log(1 / 2) / 4 + math.log(3 / 2) * 3 / 4
    assert float(plain) == pytest.approx(mean)
    assert float(smoothed) == pytest.approx(mean + 3.0 / 4 * (p_from_q + q_from_p))


def test_perplexity() -> None:
    assert perplexity(7 * math.log(3), 7) == pytest.approx(3)
    assert math.isfinite(perplexity(1e9, 1))
    assert perplexity(0.0, 0) == 1
