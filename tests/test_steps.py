"""§5.1: one gradient of a batch, whichever arithmetic computes it, whole or by halves."""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from regard.arithmetic.choose import LARGE, can_use_loops, for_training
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.int8 import Int8Products
from regard.arithmetic.products import Products
from regard.data.batches import Batch
from regard.data.rows import Rows
from regard.equations import Arithmetic
from regard.errors import RecipeError
from regard.loss import smoothed_loss
from regard.machine.processes import OutOfMemory
from regard.optimizer import FlatAdam
from regard.recipe import Recipe
from regard.steps import BySize, Halves, Steps, Whole, batch_loss, steps_for
from regard.training import update
from regard.transformer import Transformer
from run.copying import RECIPE, epoch, needs_int8, prepared

CALM = RECIPE.but(dropout=0.0)
VOCABULARY = 256 + 3 + 10
"""Bytes, signs, and a digit with the space before it."""
CPU = torch.device("cpu")
needs_loops = pytest.mark.skipif(not can_use_loops(), reason="there is no Numba")
by_halves = pytest.mark.parametrize(
    "arithmetic", ["halves", pytest.param("loops", marks=needs_loops)]
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


@pytest.fixture(autouse=True)
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads until the end of the test; before that, there are two."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield torch.set_num_threads
    torch.set_num_threads(before)


class Part(NamedTuple):
    """A part of a batch whose loss was computed, by this arithmetic, with this many threads."""

    batch: Batch
    by: Arithmetic
    threads: int


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Every part of a batch of which the loss is computed, in order."""
    found: list[Part] = []

    def listening(model: Transformer, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        found.append(Part(batch, model.by, torch.get_num_threads()))
        return batch_loss(model, batch, smoothing)

    monkeypatch.setattr("regard.steps.batch_loss", listening)
    return found


def begun(
    recipe: Recipe, dtype: torch.dtype = torch.float32
) -> tuple[Transformer, FlatAdam, Steps]:
    """A model, its optimizer, and what learns from batches as the recipe says."""
    torch.manual_seed(1)
    model = Transformer(recipe.model, VOCABULARY).train()
    optimizer = FlatAdam(model, recipe.training, dtype)
    return model, optimizer, steps_for(model, optimizer, recipe, CPU, dtype, pytest.fail)


def updated(
    batches: Sequence[Batch], arithmetic: str, recipe: Recipe = CALM
) -> tuple[Tensor, tuple[float, float]]:
    """Adam's first moment after one update, a tenth of the gradient; and the losses per token.

    The weights show less: a first step of Adam is the rate, however small the gradient.
    """
    _, optimizer, steps = begun(recipe.but(arithmetic=arithmetic))
    loss = update(steps, optimizer, batches, 0.01)
    return optimizer.state()["exp_avg"], loss.per_token()


def test_the_batch_loss_is_that_of_the_definition(data: Path) -> None:
    [batch] = epoch(data, "grouped", 4001)
    model = Transformer(CALM.model, VOCABULARY)
    logits = model(batch.source, batch.target).flatten(0, 1)
    expected = smoothed_loss(logits, batch.labels.flatten(), 0.1)
    torch.testing.assert_close(batch_loss(model, batch, 0.1), expected)


@pytest.mark.parametrize("layout", ["grouped", "packed"])
@pytest.mark.parametrize(
    ("arithmetic", "cores"),
    [
        ("auto", 1),
        ("plain", 1),
        ("whole", 1),
        ("halves", 2),
        pytest.param("loops", 1, marks=needs_loops),
        pytest.param("loops", 2, marks=needs_loops),
    ],
)
def test_an_update_is_that_of_the_definitions_by_each_arithmetic(
    data: Path, threads: Callable[[int], None], layout: str, arithmetic: str, cores: int
) -> None:
    """Autograd through `forward` and the loss as defined, and PyTorch's own Adam."""
    batches = epoch(data, layout, 97, row_length=16)[:3]
    torch.manual_seed(1)
    model, tokens = Transformer(CALM.model, VOCABULARY), sum(b.target_tokens for b in batches)
    adam = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    losses = [
        torch.stack(smoothed_loss(model(b.source, b.target).flatten(0, 1), b.labels.flatten(), 0.1))
        for b in batches
    ]
    expected_losses = torch.stack(losses).sum(0) / tokens
    expected_losses[0].backward()
    adam.step()
    expected = torch.cat(
        [adam.state[p].get("exp_avg", torch.zeros_like(p)).flatten() for p in model.parameters()]
    )
    threads(cores)
    found, found_losses = updated(batches, arithmetic)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert found_losses == pytest.approx(expected_losses.tolist(), rel=1e-6)


@by_halves
@pytest.mark.parametrize("layout", ["grouped", "packed"])
def test_an_update_by_halves_is_that_of_the_whole_batch(
    data: Path, parts: list[Part], layout: str, arithmetic: str
) -> None:
    batches = epoch(data, layout, 397, row_length=16)[:3]
    other, other_losses = updated(batches, arithmetic)
    assert sorted(len(part.batch.labels) for part in parts) == sorted(
        rows for b in batches for rows in (len(b.labels) // 2, len(b.labels) - len(b.labels) // 2)
    )
    assert {part.threads for part in parts} == {1}
    moment, losses = updated(batches, "whole")
    assert len(parts) == 3 * len(batches)
    torch.testing.assert_close(other, moment, atol=1e-6, rtol=0)
    assert other_losses == pytest.approx(losses, rel=1e-6)


@by_halves
def test_a_half_may_be_padding_alone(data: Path, parts: list[Part], arithmetic: str) -> None:
    """The end of a packed batch is padding where the pairs do not fill it."""
    [batch] = epoch(data, "packed", 4001, row_length=16)
    more = [torch.cat([x, torch.zeros_like(x)]) for x in (*batch.source, *batch.target)]
    longer = batch._replace(
        source=Rows(*more[:3]),
        target=Rows(*more[3:]),
        labels=torch.cat([batch.labels, torch.zeros_like(batch.labels)]),
    )
    moment, losses = updated([longer], arithmetic)
    assert [part.batch.target_tokens for part in parts].count(0) == 1
    whole, whole_losses = updated([batch], "whole")
    torch.testing.assert_close(moment, whole, atol=1e-6, rtol=0)
    assert losses == pytest.approx(whole_losses, rel=1e-6)


@needs_int8
@pytest.mark.parametrize(
    "arithmetic", ["whole", "halves", pytest.param("loops", marks=needs_loops)]
)
def test_an_update_in_int8_is_near_that_in_fp32(
    data: Path, parts: list[Part], arithmetic: str
) -> None:
    batches = epoch(data, "grouped", 397)[:3]
    near, _ = updated(batches, arithmetic, CALM.but(precision="int8"))
    exact, _ = updated(batches, arithmetic)
    count = len(batches) * (1 if arithmetic == "whole" else 2)
    products = [type(part.by.products) for part in parts if isinstance(part.by, Cpu)]
    assert products == [Int8Products] * count + [Products] * count
    assert 1e-4 < (near - exact).norm() / exact.norm() < 0.05


@by_halves
def test_halves_have_masks_of_their_own_the_same_in_each_run(
    data: Path, parts: list[Part], monkeypatch: pytest.MonkeyPatch, arithmetic: str
) -> None:
    [batch] = epoch(data, "grouped", 4001)
    twice = batch._replace(  # so that both halves are the same rows
        source=Rows(*(torch.cat([x, x]) for x in batch.source)),
        target=Rows(*(torch.cat([x, x]) for x in batch.target)),
        labels=torch.cat([batch.labels, batch.labels]),
    )
    losses: list[Tensor] = []
    learn = Whole.learn

    def learned(steps: Whole, half: Batch) -> Tensor:
        losses.append(learn(steps, half))
        return losses[-1]

    monkeypatch.setattr(Whole, "learn", learned)
    weights = []
    for _ in range(2):
        recipe = CALM.but(dropout=0.3, arithmetic=arithmetic)
        _, optimizer, steps = begun(recipe, torch.bfloat16)
        for _ in range(3):
            update(steps, optimizer, [twice], 0.01)
        weights.append(optimizer.master)
    assert len(parts) == 12
    assert torch.equal(*weights)
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(losses[:6], 2))


@by_halves
def test_a_half_without_memory_leaves_no_gradient_behind(
    data: Path, parts: list[Part], monkeypatch: pytest.MonkeyPatch, arithmetic: str
) -> None:
    [batch] = epoch(data, "grouped", 4001)
    _, optimizer, steps = begun(CALM.but(arithmetic=arithmetic))
    learn, both = Whole.learn, threading.Barrier(2, timeout=60)

    def short_of_memory(steps: Whole, half: Batch) -> Tensor:
        learn(steps, half)
        both.wait()  # else the second half might never begin
        raise MemoryError

    with monkeypatch.context() as short:
        short.setattr(Whole, "learn", short_of_memory)
        with pytest.raises(OutOfMemory):
            update(steps, optimizer, [batch], 0.01)
    assert len(parts) == 2
    update(steps, optimizer, [batch], 0.01)
    torch.testing.assert_close(optimizer.state()["exp_avg"], updated([batch], arithmetic)[0])


@pytest.mark.parametrize(
    ("cores", "rows", "large", "count"),
    [(2, 2, 1, 2), (6, 2, 1, 2), (3, 2, 1, 1), (1, 2, 1, 1), (2, 1, 1, 1), (2, 2, 10**12, 1)],
)
def test_halves_are_for_an_even_number_of_cores_and_for_large_batches(
    data: Path,
    parts: list[Part],
    monkeypatch: pytest.MonkeyPatch,
    threads: Callable[[int], None],
    cores: int,
    rows: int,
    large: int,
    count: int,
) -> None:
    [batch] = epoch(data, "grouped", 4001)
    while len(batch.labels) > rows:
        batch = batch.halves()[0]
    monkeypatch.setattr("regard.arithmetic.choose.LARGE", large)
    threads(cores)
    updated([batch], "auto")
    assert len(parts) == count


@needs_loops
@pytest.mark.parametrize(
    ("arithmetic", "cores", "sharded", "learned"),
    [
        ("auto", 1, False, ["Cpu 1", "OneCore 1"]),
        ("auto", 1, True, ["Cpu 1", "OneCore 1"]),
        ("auto", 2, False, ["Cpu 2", "OneCore 1", "OneCore 1"]),
        ("auto", 2, True, ["Cpu 2", "Cpu 2"]),
        ("auto", 3, False, ["Cpu 3", "Cpu 3"]),
        ("auto", 4, False, ["Cpu 4", "Cpu 2", "Cpu 2"]),
        ("plain", 2, False, ["Plain 2", "Plain 2"]),
        ("whole", 2, False, ["Cpu 2", "Cpu 2"]),
        ("halves", 2, False, ["Cpu 1"] * 4),
        ("loops", 1, False, ["OneCore 1"] * 2),
        ("loops", 2, False, ["OneCore 1"] * 4),
    ],
)
def test_what_learns_from_a_small_batch_and_then_from_a_large_one(
    data: Path,
    parts: list[Part],
    monkeypatch: pytest.MonkeyPatch,
    threads: Callable[[int], None],
    arithmetic: str,
    cores: int,
    sharded: bool,
    learned: list[str],
) -> None:
    """The weights of a sharded model are gathered for one pass at a time: it is not halved."""
    [large], small = epoch(data, "grouped", 4001), epoch(data, "grouped", 97)[0]
    threads(cores)
    recipe = CALM.but(arithmetic=arithmetic)
    model = Transformer(recipe.model, VOCABULARY).train()
    between = (small.slots + large.slots) // 2 * model.parameter_count
    monkeypatch.setattr("regard.arithmetic.choose.LARGE", between)
    chosen = for_training(recipe.training, CPU, torch.float32, cores)
    model.compute_by(chosen.whole)
    steps = BySize(Whole(model, 0.1), chosen, can_halve=not sharded)
    for batch in (small, large):
        steps.learn(batch)
    assert [f"{type(part.by).__name__} {part.threads}" for part in parts] == learned
    assert model.by is chosen.whole


def test_a_large_batch_takes_a_tenth_of_a_second() -> None:
    """The paper's base model with its 25,000 + 25,000 tokens is large, that of the tests is not."""
    base = Recipe()
    with torch.device("meta"):
        weights = Transformer(base.model, base.tokenizer.vocabulary).parameter_count
    tokens = base.data.source_tokens + base.data.target_tokens
    assert tokens * weights > 100 * LARGE
    assert 61 * Transformer(CALM.model, VOCABULARY).parameter_count < LARGE / 1000


def test_an_arithmetic_that_this_machine_does_not_have_is_refused_when_a_run_begins(
    threads: Callable[[int], None],
) -> None:
    threads(3)
    with pytest.raises(RecipeError, match="divides the cores in two, and there are 3"):
        begun(CALM.but(arithmetic="halves"))


@pytest.mark.parametrize(
    "arithmetic", ["plain", "whole", "halves", pytest.param("loops", marks=needs_loops)]
)
def test_two_passes_without_dropout_agree_and_teach_what_one_does(
    data: Path, threads: Callable[[int], None], arithmetic: str
) -> None:
    threads(2)
    batches = epoch(data, "packed", 97, row_length=16)[:3]
    one = updated(batches, arithmetic)
    two = updated(batches, arithmetic, CALM.but(consistency=3.0))
    torch.testing.assert_close(two[0], one[0], rtol=1e-4, atol=1e-7)
    assert two[1] == pytest.approx(one[1], rel=1e-5)
    assert (CALM.training.passes, CALM.but(consistency=3.0).training.passes) == (1, 2)


def test_two_passes_with_dropout_are_drawn_together(data: Path) -> None:
    [batch] = epoch(data, "grouped", 4001)
    recipe = CALM.but(dropout=0.3)
    losses = {
        weight: begun(recipe.but(consistency=weight))[2].learn(batch) for weight in (1.0, 9.0)
    }
    apart = (losses[9.0] - losses[1.0]) / 8  # a quarter of the divergence, from equal masks
    assert apart[0] > 1e-3 * losses[1.0][0]
    assert apart[1] == 0


def test_halves_share_the_weights_and_each_carries_an_arithmetic_of_its_own(data: Path) -> None:
    [batch] = epoch(data, "grouped", 4001)
    model, optimizer, _ = begun(CALM)
    arithmetics = [Cpu(Products(), torch.Generator()) for _ in range(2)]
    halves = Halves(Whole(model, 0.1), arithmetics)
    optimizer.make_way()
    smoothed, plain_loss = halves.learn(batch)
    expected = batch_loss(model, batch, 0.1)
    torch.testing.assert_close(smoothed, expected[0].detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(plain_loss, expected[1].detach(), rtol=1e-6, atol=0)
    assert [step.model.by for step in halves._steps] == arithmetics
    assert model.by not in arithmetics
    assert all(
        one is two is three
        for one, two, three in zip(
            model.parameters(), *(step.model.parameters() for step in halves._steps), strict=True
        )
    )
