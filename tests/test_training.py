"""§5: an update is the same however its sentences are batched, and the journal tells each step."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.arithmetic.inference import Inference
from regard.arithmetic.int8 import Int8Products
from regard.data.batches import Batch, Batches
from regard.data.pairs import Pairs
from regard.errors import TrainingError
from regard.files.tensors import read_tensors
from regard.loss import smoothed_loss
from regard.measure.validation import loss_and_accuracy, validator
from regard.optimizer import FlatAdam
from regard.schedule import learning_rate
from regard.steps import Steps, batch_loss, steps_for
from regard.training import stop_unless_finite, update
from regard.transformer import Transformer
from run.copying import RECIPE, epoch, journal, needs_int8, prepared, trained

CALM = RECIPE.but(dropout=0.0)
VOCABULARY = 256 + 3 + 10
"""Bytes, signs, and a digit with the space before it."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


def model_of() -> Transformer:
    torch.manual_seed(1)
    return Transformer(CALM.model, VOCABULARY).train()


def steps_of(model: Transformer, optimizer: FlatAdam) -> Steps:
    device = torch.device("cpu")
    return steps_for(model, optimizer, CALM, device, torch.float32, pytest.fail)


def updated(batches: Sequence[Batch]) -> tuple[Tensor, tuple[float, float]]:
    """Adam's first moment after one update, a tenth of the gradient; and the losses per token.

    The weights tell less: a first step of Adam is the rate, however small the gradient.
    """
    model = model_of()
    optimizer = FlatAdam(model, CALM.training, torch.float32)
    loss = update(steps_of(model, optimizer), optimizer, batches, 0.01)
    assert loss.source_tokens == sum(batch.source_tokens for batch in batches)
    assert loss.target_tokens == sum(batch.target_tokens for batch in batches)
    return optimizer.state()["exp_avg"], loss.per_token()


def test_one_update_is_the_same_however_its_pairs_are_batched(data: Path) -> None:
    [whole] = epoch(data, "grouped", 4001)
    moment, losses = updated([whole])
    assert moment.abs().max() > 1e-3
    layouts = {
        "one by one": epoch(data, "grouped", 8),
        "accumulated": epoch(data, "grouped", 97),
        "packed": epoch(data, "packed", 4001, row_length=64),
        "packed, accumulated": epoch(data, "packed", 128, row_length=16),
    }
    assert [len(batches) > 1 for batches in layouts.values()] == [True, True, False, True]
    for name, batches in layouts.items():
        other, other_losses = updated(batches)
        torch.testing.assert_close(other, moment, atol=1e-6, rtol=0, msg=name)
        assert other_losses == pytest.approx(losses, rel=1e-6), name


def test_an_update_is_that_of_the_definitions(data: Path) -> None:
    """Plain autograd through `forward` and the loss as defined, and torch's own Adam."""
    batches = epoch(data, "grouped", 97)[:3]
    model, tokens = model_of(), sum(batch.target_tokens for batch in batches)
    adam = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    losses = [
        smoothed_loss(model(b.source, b.target).flatten(0, 1), b.labels.flatten(), 0.1)[0]
        for b in batches
    ]
    (torch.stack(losses).sum() / tokens).backward()
    adam.step()
    expected = torch.cat(
        [adam.state[p].get("exp_avg", torch.zeros_like(p)).flatten() for p in model.parameters()]
    )
    torch.testing.assert_close(updated(batches)[0], expected, atol=1e-6, rtol=0)


def test_accumulating_is_as_good_as_a_larger_batch_in_the_loop(data: Path, tmp_path: Path) -> None:
    """Over an epoch of one step either way."""
    few = CALM.but(steps=1, source_tokens=97, target_tokens=97)
    count = len(epoch(data, "grouped", 97))
    accumulated = trained(tmp_path / "a", data, few.but(accumulate=count))
    whole = trained(tmp_path / "b", data, CALM.but(steps=1, source_tokens=4001, target_tokens=4001))
    moments = [
        read_tensors(tmp_path / run / "checkpoints" / "step-1" / "optimizer.safetensors")["exp_avg"]
        for run in ("a", "b")
    ]
    torch.testing.assert_close(moments[0], moments[1], atol=1e-6, rtol=0)
    assert accumulated.keys() == whole.keys()


def test_the_rate_is_the_schedules_from_step_one_and_the_loss_falls(
    data: Path, tmp_path: Path
) -> None:
    recipe = CALM.but(steps=37)
    trained(tmp_path / "run", data, recipe)
    records = journal(tmp_path / "run", "step")
    assert [record["step"] for record in records] == list(range(1, 38))
    assert [record["rate"] for record in records] == [
        learning_rate(step, 16, 7) for step in range(1, 38)
    ]
    losses = [record["loss"] for record in records]
    assert abs(losses[0] - math.log(VOCABULARY)) < 1  # at first it knows nothing
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert all(record["plain_loss"] < record["loss"] for record in records[-5:])


def test_what_the_journal_counts(data: Path, tmp_path: Path) -> None:
    trained(tmp_path / "run", data, RECIPE.but(steps=4, accumulate=3))
    batches = Batches(Pairs.open(data, "train"), RECIPE.data, 1, layout="grouped")
    source = target = 0
    records = journal(tmp_path / "run", "step")
    assert len(records) == 4
    for record in records:
        some = batches.take(3)
        source += sum(batch.source_tokens for batch in some)
        target += sum(batch.target_tokens for batch in some)
        assert (record["source_tokens"], record["target_tokens"]) == (source, target)
        assert record["epoch"] == round(batches.epoch, 3)


def test_a_step_logs_the_loss_of_its_own_batches_before_its_update(
    data: Path, tmp_path: Path
) -> None:
    trained(tmp_path / "run", data, CALM.but(steps=1))
    [batch] = Batches(Pairs.open(data, "train"), CALM.data, 1, layout="grouped").take(1)
    with torch.no_grad():
        losses = [float(loss) for loss in batch_loss(model_of(), batch, 0.1)]
    [record] = journal(tmp_path / "run", "step")
    logged = [record["loss"] * batch.target_tokens, record["plain_loss"] * batch.target_tokens]
    assert logged == pytest.approx(losses, rel=1e-6)


@needs_int8
def test_validation_rounds_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computing: list[Any] = []

    def listening(model: Transformer, *others: Any) -> tuple[float, float]:
        computing.append(model.by)
        return loss_and_accuracy(model, *others)

    monkeypatch.setattr("regard.measure.validation.loss_and_accuracy", listening)
    recipe = RECIPE.but(precision="int8", steps=5)
    trained(tmp_path / "run", data, recipe, validator(data, recipe))
    [by] = computing
    assert isinstance(by, Inference)
    assert not isinstance(by.products, Int8Products)


def test_what_has_diverged_is_said_with_step_rate_and_remedy() -> None:
    optimizer = FlatAdam(model_of(), CALM.training, torch.float32)
    stop_unless_finite(5.0, optimizer, 7, 0.01)
    for loss in (math.nan, math.inf):
        with pytest.raises(TrainingError, match=rf"step 7: the loss is {loss}: .* rate 1\.00e-02"):
            stop_unless_finite(loss, optimizer, 7, 0.01)
    optimizer.master[3] = -math.inf
    with pytest.raises(TrainingError, match=r"some weights are not numbers.* training\.warmup"):
        stop_unless_finite(5.0, optimizer, 7, 0.01)
