"""Flat Adam does what torch.optim.Adam does to each tensor, and keeps small steps in bf16."""

import copy

import pytest
import torch
from torch import nn

from regard.optimizer import FlatAdam
from regard.recipe import TrainingRecipe


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2))


def test_equals_adam_with_the_papers_constants() -> None:
    ours, theirs = model(), model()
    flat = FlatAdam(ours, TrainingRecipe(), torch.float32)
    adam = torch.optim.Adam(theirs.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, 6):
        rate = 0.01 * step
        inputs = torch.randn(7, 3, generator=torch.Generator().manual_seed(step))
        for half in inputs.split(4):  # two backward passes, one update
            ours(half).pow(2).sum().backward()
            flat.collect()
        flat.step(rate, tokens=7)
        adam.param_groups[0]["lr"] = rate
        adam.zero_grad()
        theirs(inputs).pow(2).sum().div(7).backward()
        adam.step()
        for mine, his in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, his, atol=1e-6, rtol=1e-5)


def test_steps_below_bf16_resolution_add_up_in_the_master() -> None:
    ours = nn.Linear(1, 1, bias=False)
    nn.init.ones_(ours.weight)
    flat = FlatAdam(ours, TrainingRecipe(), torch.bfloat16)
    for _ in range(100):  # Adam's step is the rate itself: 1e-4, while bf16 near 1 steps by 2^-8
        ours(torch.ones(1, 1, dtype=torch.bfloat16)).sum().backward()
        flat.collect()
        flat.step(1e-4, tokens=1)
    assert float(flat.master) == pytest.approx(0.99, abs=1e-4)
    assert ours.weight.dtype == torch.bfloat16
    assert float(ours.weight.detach()) == pytest.approx(0.99, abs=2**-8)


def test_restored_state_goes_on_identically() -> None:
    def advance(net: nn.Module, optimizer: FlatAdam, seed: int) -> None:
        net(torch.randn(7, 3, generator=torch.Generator().manual_seed(seed))).sum().backward()
        optimizer.collect()
        optimizer.step(0.01, tokens=7)

    one = model()
    first = FlatAdam(one, TrainingRecipe(), torch.float32)
    advance(one, first, 1)
    kept = copy.deepcopy((first.named_weights(), first.state()))
    advance(one, first, 2)
    other = model()
    second = FlatAdam(other, TrainingRecipe(), torch.float32)
    second.restore(*kept)
    advance(other, second, 2)
    assert torch.equal(first.master, second.master)


def test_not_finite_is_seen() -> None:
    flat = FlatAdam(model(), TrainingRecipe(), torch.float32)
    assert flat.is_finite()
    flat.master[3] = float("nan")
    assert not flat.is_finite()
