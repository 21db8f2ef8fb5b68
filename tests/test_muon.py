"""FlatMuon moves matrices as torch.optim.Muon does, and all other parameters as FlatAdam does."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from regard.arithmetic.choose import for_update
from regard.muon import FlatMuon, orthogonal
from regard.optimizer import FlatAdam
from regard.paper import BASE
from regard.recipe import TrainingRecipe
from regard.transformer import Transformer

CPU = torch.device("cpu")
SMALL = BASE.but(layers=1, d_model=16, heads=2, d_ff=48, dropout=0.0).model
RATE = 0.02


def network(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return Transformer(SMALL, 20)


def with_gradients(net: nn.Module, seed: int, scale: float = 1.0) -> None:
    """Fill the gradients with arbitrary numbers, as a backward pass would."""
    torch.manual_seed(seed)
    for parameter in net.parameters():
        numbers = scale * torch.randn(parameter.shape)
        if parameter.grad is None:
            parameter.grad = numbers.to(parameter.dtype)
        else:
            parameter.grad.copy_(numbers)


def advance(flat: FlatAdam, net: nn.Module, seed: int) -> None:
    flat.make_way()
    with_gradients(net, seed, scale=7.0)
    flat.step(RATE, tokens=7)


@settings(deadline=None)
@given(
    rows=st.integers(1, 24), columns=st.integers(1, 24), count=st.integers(1, 3),
    seed=st.integers(0, 2**20),
)  # fmt: skip
def test_orthogonal_keeps_directions_and_makes_singular_values_near_one(
    rows: int, columns: int, count: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    size = min(rows, columns)
    left = torch.linalg.qr(torch.randn(count, rows, size, generator=generator))[0]
    right = torch.linalg.qr(torch.randn(count, columns, size, generator=generator))[0]
    values = 0.1 + torch.rand(count, 1, size, generator=generator)
    found = orthogonal((left * values) @ right.mT)
    inside = left.mT @ found @ right
    diagonal = inside.diagonal(dim1=1, dim2=2)
    assert ((diagonal > 0.6) & (diagonal < 1.25)).all()
    torch.testing.assert_close(inside, torch.diag_embed(diagonal), atol=1e-3, rtol=0)
    torch.testing.assert_close(left @ inside @ right.mT, found, atol=1e-3, rtol=0)


def test_orthogonal_of_zeros_is_zeros() -> None:
    assert not orthogonal(torch.zeros(2, 3, 4)).any()


@pytest.mark.parametrize("decay", [0.0, 3.0])
def test_matrices_learn_as_by_the_muon_of_pytorch_and_the_rest_as_by_adam(decay: float) -> None:
    ours, by_adam, theirs = network(), network(), network()
    recipe = TrainingRecipe(optimizer="muon", weight_decay=decay)
    flat = FlatMuon(ours, recipe, torch.float32)
    adam = FlatAdam(by_adam, TrainingRecipe(), torch.float32)
    matrices = {f"{n}.weight" for n, m in theirs.named_modules() if isinstance(m, nn.Linear)}
    muon = torch.optim.Muon(
        [p for name, p in theirs.named_parameters() if name in matrices],
        lr=RATE, weight_decay=decay, adjust_lr_fn="match_rms_adamw",
    )  # fmt: skip
    for seed in range(4):
        advance(flat, ours, seed)
        advance(adam, by_adam, seed)
        with_gradients(theirs, seed)
        muon.step()
    rest, his = dict(by_adam.named_parameters()), dict(theirs.named_parameters())
    assert len(matrices) == 3 * 4 + 2 * 2  # three attentions and two feed-forward layers
    for name, parameter in ours.named_parameters():
        if name in matrices:  # PyTorch's multiplies in bf16, whatever the weights
            torch.testing.assert_close(parameter, his[name], atol=RATE * 0.05, rtol=0)
        else:
            assert torch.equal(parameter, rest[name]), name


@pytest.mark.parametrize("arithmetic", ["plain", "whole", "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_copy_goes_on_to_the_same_bits(arithmetic: str, dtype: torch.dtype) -> None:
    recipe = TrainingRecipe(arithmetic=arithmetic)
    by = for_update(recipe, CPU, dtype, 2**30)
    one, other = network(), network(seed=2)
    first = FlatMuon(one, recipe, dtype, by)
    advance(first, one, 1)
    second = FlatMuon(other, recipe, dtype, by)
    second.restore(first.named_weights(), {k: v.clone() for k, v in first.state().items()})
    for flat, net in (first, one), (second, other):
        advance(flat, net, 2)
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, its)
    assert all(torch.equal(first.state()[k], second.state()[k]) for k in first.state())


def test_after_an_update_the_next_gradient_begins_at_zero() -> None:
    ours = network()
    flat = FlatMuon(ours, TrainingRecipe(), torch.float32)
    advance(flat, ours, 1)
    assert not any(p.grad.any() for p in ours.parameters() if p.grad is not None)


def test_moments_are_saved_in_the_order_of_the_parameters() -> None:
    ours, theirs = network(), network()
    muon = FlatMuon(ours, TrainingRecipe(beta1=0.95), torch.float32)
    adam = FlatAdam(theirs, TrainingRecipe(beta1=0.95), torch.float32)
    advance(muon, ours, 1)
    advance(adam, theirs, 1)
    torch.testing.assert_close(muon.state()["exp_avg"], adam.state()["exp_avg"])


def test_an_update_in_bf16_is_near_that_in_fp32() -> None:
    exact, rounded = network(), network()
    flats = [
        FlatMuon(exact, TrainingRecipe(), torch.float32),
        FlatMuon(rounded, TrainingRecipe(), torch.bfloat16),
    ]
    before = flats[0].master.clone()
    for flat, net in zip(flats, (exact, rounded), strict=True):
        advance(flat, net, 1)
    moved = [flat.master - before for flat in flats]
    assert torch.nn.functional.cosine_similarity(*moved, dim=0) > 0.99
    assert flats[1].weights.dtype == torch.bfloat16
    assert torch.equal(flats[1].weights, flats[1].master.bfloat16())
