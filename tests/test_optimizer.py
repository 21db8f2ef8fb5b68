"""FlatAdam updates as torch.optim.Adam does, by each arithmetic, and keeps small steps in bf16."""

import copy

import pytest
import torch
from torch import nn

from regard.arithmetic.choose import can_use_loops
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.cuda import Cuda
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import Products
from regard.equations import Arithmetic
from regard.optimizer import FlatAdam
from regard.recipe import TrainingRecipe

BY: list[Arithmetic] = [PLAIN, Cpu(Products()), Cuda(learning=True)]
if can_use_loops():
    from regard.arithmetic.one_core import OneCore

    BY.append(OneCore(Products()))
by_each = pytest.mark.parametrize("by", BY, ids=lambda by: type(by).__name__)


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2))


@by_each
def test_equals_adam_with_the_papers_constants(by: Arithmetic) -> None:
    ours, theirs = model(), model()
    flat = FlatAdam(ours, TrainingRecipe(), torch.float32, by)
    adam = torch.optim.Adam(theirs.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, 6):
        rate = 0.01 * step
        inputs = torch.randn(7, 3, generator=torch.Generator().manual_seed(step))
        for half in inputs.split(4):  # two backward passes, one update
            flat.make_way()
            ours(half).pow(2).sum().backward()
        flat.step(rate, tokens=7)
        adam.param_groups[0]["lr"] = rate
        adam.zero_grad()
        theirs(inputs).pow(2).sum().div(7).backward()
        adam.step()
        for mine, his in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, his, atol=1e-6, rtol=1e-5)


@by_each
def test_the_constants_are_those_of_the_recipe(by: Arithmetic) -> None:
    ours, theirs = model(), model()
    recipe = TrainingRecipe(beta1=0.7, beta2=0.8, epsilon=0.01)
    flat = FlatAdam(ours, recipe, torch.float32, by)
    adam = torch.optim.Adam(theirs.parameters(), lr=0.01, betas=(0.7, 0.8), eps=0.01)
    for seed in range(3):
        inputs = torch.randn(7, 3, generator=torch.Generator().manual_seed(seed))
        flat.make_way()
        adam.zero_grad()
        for net in (ours, theirs):
            net(inputs).pow(2).mean().backward()
        flat.step(0.01, tokens=1)
        adam.step()
    for mine, his in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, his, atol=1e-6, rtol=1e-5)


@by_each
def test_steps_below_bf16_resolution_add_up_in_the_master(by: Arithmetic) -> None:
    ours = nn.Linear(1, 1, bias=False)
    nn.init.ones_(ours.weight)
    flat = FlatAdam(ours, TrainingRecipe(), torch.bfloat16, by)
    for _ in range(100):  # Adam's step is the rate itself: 1e-4, while bf16 near 1 steps by 2^-8
        flat.make_way()
        ours(torch.ones(1, 1, dtype=torch.bfloat16)).sum().backward()
        flat.step(1e-4, tokens=1)
    assert float(flat.master) == pytest.approx(0.99, abs=1e-4)
    assert ours.weight.dtype == torch.bfloat16
    assert float(ours.weight.detach()) == pytest.approx(0.99, abs=2**-8)


@by_each
def test_restored_state_goes_on_identically(by: Arithmetic) -> None:
    def advance(net: nn.Module, optimizer: FlatAdam, seed: int) -> None:
        optimizer.make_way()
        net(torch.randn(7, 3, generator=torch.Generator().manual_seed(seed))).sum().backward()
        optimizer.step(0.01, tokens=7)

    one = model()
    first = FlatAdam(one, TrainingRecipe(), torch.float32, by)
    advance(one, first, 1)
    kept = copy.deepcopy((first.named_weights(), first.state()))
    advance(one, first, 2)
    other = model()
    second = FlatAdam(other, TrainingRecipe(), torch.float32, by)
    second.restore(*kept)
    advance(other, second, 2)
    assert torch.equal(first.master, second.master)


@by_each
@pytest.mark.parametrize("passes", [1, 2])
def test_in_bf16_equals_adam_on_the_gradients_summed_in_fp32(passes: int, by: Arithmetic) -> None:
    """The loop updates from the bf16 gradient of one pass; the sum of two is in fp32."""
    ours = nn.Linear(2**9, 2**9 + 3)
    torch.manual_seed(1)
    flat = FlatAdam(ours, TrainingRecipe(), torch.bfloat16, by)
    theirs = flat.master.clone()
    adam = torch.optim.Adam([theirs], betas=(0.9, 0.98), eps=1e-9)
    for rate in (0.01, 0.02, 0.03):
        theirs.grad = torch.zeros_like(theirs)
        for _ in range(passes):
            flat.make_way()
            gradients = [torch.randn_like(p).bfloat16() for p in ours.parameters()]
            for parameter, gradient in zip(ours.parameters(), gradients, strict=True):
                assert parameter.grad is not None
                assert not parameter.grad.any(), "a pass adds to what lies there"
                parameter.grad += gradient
            theirs.grad += torch.cat([g.flatten() for g in gradients]).float() / 7
        flat.step(rate, tokens=7)
        adam.param_groups[0]["lr"] = rate
        adam.step()
        torch.testing.assert_close(flat.master, theirs, atol=1e-6, rtol=1e-5)
        assert torch.equal(flat.weights, flat.master.bfloat16())
    assert flat.state()["step"] == 3


def test_what_was_broken_off_is_forgotten() -> None:
    ours = model()
    flat = FlatAdam(ours, TrainingRecipe(), torch.float32)
    before = flat.master.clone()
    for passes in (1, 2):
        for _ in range(passes):
            flat.make_way()
            ours(torch.randn(7, 3)).sum().backward()
        flat.forget()
        with pytest.raises(AssertionError, match="no gradient"):
            flat.step(0.01, tokens=7)
    flat.make_way()
    ours(torch.zeros(7, 3)).mul(0).sum().backward()
    flat.step(0.01, tokens=7)
    assert torch.equal(flat.master, before)


def test_not_finite_is_seen() -> None:
    flat = FlatAdam(model(), TrainingRecipe(), torch.float32)
    assert flat.is_finite()
    flat.master[3] = float("nan")
    assert not flat.is_finite()
