"""The chunked loss equals its definition, and PyTorch's: values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.arithmetic import cross_entropy
from regard.arithmetic.cross_entropy import smoothed_cross_entropy
from regard.loss import smoothed_loss

pytestmark = pytest.mark.usefixtures("plain_or_loops")

VOCABULARY, D_MODEL = 23, 7


def problem(seed: int, tokens: int):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(tokens, D_MODEL, generator=generator).requires_grad_()
    embedding = torch.randn(VOCABULARY, D_MODEL, generator=generator).requires_grad_()
    labels = torch.randint(0, VOCABULARY, (tokens,), generator=generator)
    return states, embedding, labels


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.integers(1, 41), st.sampled_from([0.0, 0.1, 0.4]))
def test_equals_the_definition_and_torch(seed: int, tokens: int, smoothing: float) -> None:
    states, embedding, labels = problem(seed, tokens)
    before, cross_entropy.CHUNK_CPU = cross_entropy.CHUNK_CPU, 11  # several chunks, the last short
    try:
        fast, plain = smoothed_cross_entropy(states, embedding, labels, smoothing)
    finally:
        cross_entropy.CHUNK_CPU = before
    logits = states @ embedding.T
    exact, exact_plain = smoothed_loss(logits, labels, smoothing)
    theirs = F.cross_entropy(
        logits, labels, label_smoothing=smoothing, ignore_index=0, reduction="sum"
    )
    torch.testing.assert_close(exact, theirs, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(fast, exact, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(plain, exact_plain, atol=1e-4, rtol=1e-5)
    inputs = (states, embedding)
    for mine, his in zip(
        torch.autograd.grad(3 * fast, inputs), torch.autograd.grad(3 * theirs, inputs), strict=True
    ):
        torch.testing.assert_close(mine, his, atol=1e-5, rtol=1e-4)


def test_without_gradient_bf16_losses_are_computed_in_fp32() -> None:
    states, embedding, labels = problem(7, 31)
    half = states.detach().bfloat16(), embedding.detach().bfloat16()
    with torch.no_grad():
        _, plain = smoothed_cross_entropy(*half, labels, 0.1)
    logits = (half[0] @ half[1].T).float()
    torch.testing.assert_close(plain, smoothed_loss(logits, labels, 0.1)[1], atol=1e-4, rtol=1e-5)


def test_bf16_gradients_stay_near_fp32() -> None:
    states, embedding, labels = problem(8, 211)
    exact = torch.autograd.grad(
        smoothed_cross_entropy(states, embedding, labels, 0.1)[0], (states, embedding)
    )
    half = tuple(t.detach().bfloat16().requires_grad_() for t in (states, embedding))
    near = torch.autograd.grad(smoothed_cross_entropy(*half, labels, 0.1)[0], half)
    for mine, his in zip(near, exact, strict=True):
        assert (mine - his).norm() / his.norm() < 0.02
