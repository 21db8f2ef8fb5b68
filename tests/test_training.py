"""§5: an update is the same however its sentences are batched, and a run however often stopped."""

import itertools
import math
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.arithmetic.inference import Inference
from regard.arithmetic.int8 import Int8Products
from regard.data.batches import Batch, Batches
from regard.data.pairs import Pairs
from regard.data.prefetch import Prefetched, training_batches
from regard.errors import RegardError, TrainingError
from regard.files.tensors import read_tensors
from regard.loss import smoothed_loss
from regard.machine.interrupt import Interrupt, Interrupted
from regard.measure.validation import loss_and_accuracy, validator
from regard.optimizer import FlatAdam
from regard.run import checkpoints
from regard.run.checkpoints import newest
from regard.run.journal import Record, read_journal
from regard.run.model_directory import open_model
from regard.run.run import Run
from regard.run.setup import Setup
from regard.schedule import learning_rate
from regard.steps import Steps, batch_loss, steps_for
from regard.training import Loss, stop_unless_finite, train, update
from regard.transformer import Transformer
from run.copying import RECIPE, epoch, needs_int8, prepared, trained
from run.killing import full_at, in_fork

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


def journal(run: Path, *events: str) -> list[Record]:
    """Without what the clock tells."""
    timed = {"time", "seconds", "tokens_per_second"}
    return [
        {key: value for key, value in record.items() if key not in timed}
        for record in read_journal(run / "journal.jsonl")
        if record["event"] in (events or ("step", "validation"))
    ]


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


def state_of(run: Path) -> dict[str, Tensor]:
    """Weights, moments and random state of the newest checkpoint."""
    [found] = newest(run / "checkpoints", 1, pytest.fail)
    return found.weights() | read_tensors(found.path / "optimizer.safetensors")


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    trained(run, data, validate=validator(data, RECIPE))
    return run


def test_the_same_seed_gives_the_same_run_to_the_bit(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    trained(tmp_path / "again", data, validate=validator(data, RECIPE))
    assert same(state_of(tmp_path / "again"), state_of(undisturbed))
    assert journal(tmp_path / "again") == journal(undisturbed)
    other = RECIPE.but(seed=2)
    trained(tmp_path / "other", data, other)
    assert not same(state_of(tmp_path / "other"), state_of(undisturbed))


@pytest.mark.parametrize("stops", [*[(n,) for n in range(1, 12)], (2, 3, 7), tuple(range(1, 12))])
def test_a_run_stopped_at_any_step_goes_on_as_if_it_had_not_been(
    data: Path, tmp_path: Path, undisturbed: Path, stops: tuple[int, ...]
) -> None:
    in_fork(stop_and_go_on, data, tmp_path / "run", undisturbed, stops)


def stop_and_go_on(data: Path, run: Path, undisturbed: Path, stops: tuple[int, ...]) -> None:
    validate = validator(data, RECIPE)
    for stop in stops:
        interrupt = Interrupt()

        def ask(record: Record, stop: int = stop, interrupt: Interrupt = interrupt) -> None:
            if record["event"] in ("start", "step") and record["step"] == stop - 1:
                interrupt.signum = signal.SIGTERM

        with pytest.raises(Interrupted, match=f"stopped at step {stop}, which is saved"):
            trained(run, data, RECIPE, validate, interrupt=interrupt, listeners=(ask,))
        assert newest(run / "checkpoints", 1, pytest.fail)[0].step == stop
    final = trained(run, data, RECIPE, validate)
    assert same(state_of(run), state_of(undisturbed))
    assert same(final, dict(open_model(undisturbed).network.named_parameters()))
    assert journal(run) == journal(undisturbed)
    assert [record["step"] for record in journal(run, "start")] == [0, *stops]


@pytest.mark.parametrize(
    ("precision", "optimizer"),
    [("bf16", "adam"), ("bf16", "muon"), pytest.param("int8", "adam", marks=needs_int8)],
)
def test_a_run_that_rounds_goes_on_to_the_bit_too(
    data: Path, tmp_path: Path, precision: str, optimizer: str
) -> None:
    """Its master copy is what a checkpoint keeps."""
    recipe = RECIPE.but(precision=precision, optimizer=optimizer, steps=5)
    trained(tmp_path / "whole", data, recipe)
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path / "cut", data, recipe, listeners=(lambda r: 1 // (4 - r["step"]),))
    trained(tmp_path / "cut", data, recipe)
    assert same(state_of(tmp_path / "cut"), state_of(tmp_path / "whole"))
    assert journal(tmp_path / "cut") == journal(tmp_path / "whole")


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


def test_whatever_is_raised_in_the_loop_the_run_goes_on_from_what_was_saved(
    data: Path, tmp_path: Path
) -> None:
    in_fork(stumble_at_each_record, data, tmp_path)


def stumble_at_each_record(data: Path, tmp_path: Path) -> None:
    recipe = RECIPE.but(steps=5)
    trained(tmp_path / "whole", data, recipe)
    for n in itertools.count(1):  # the n-th record that is journalled is the last
        left = n

        def stumble(record: Record) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise MemoryError

        run = tmp_path / str(n)
        try:
            trained(run, data, recipe, listeners=(stumble,))
        except MemoryError:
            trained(run, data, recipe)
        else:
            break
        assert same(state_of(run), state_of(tmp_path / "whole"))
        assert journal(run) == journal(tmp_path / "whole")
    assert n == len(read_journal(tmp_path / "whole" / "journal.jsonl")) + 1


@pytest.mark.parametrize("first", [1, 2, 3, 4, 5])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_when_there_is_room(
    data: Path, tmp_path: Path, first: int
) -> None:
    """At any write of a whole run, a fifth of them here."""
    in_fork(fill_disk_at_writes, data, tmp_path, first)


def fill_disk_at_writes(data: Path, tmp_path: Path, first: int) -> None:
    recipe = RECIPE.but(steps=3)
    trained(tmp_path / "whole", data, recipe)
    for n in itertools.count(first, 5):
        run = tmp_path / str(n)
        try:
            if not full_at(n, trained, run, data, recipe):
                break
        except RegardError as error:
            assert "cannot write: No space left on device" in str(error)
        trained(run, data, recipe)
        assert same(state_of(run), state_of(tmp_path / "whole"))
        assert journal(run) == journal(tmp_path / "whole")
        assert open_model(run).manifest["averaged"] == [2, 3]
    assert n > 60


@pytest.mark.parametrize("layout", ["grouped", "packed"])
def test_both_layouts_are_trained_in_and_resumed(data: Path, tmp_path: Path, layout: str) -> None:
    recipe = RECIPE.but(layout=layout, row_length=16, steps=5)
    trained(tmp_path / "whole", data, recipe)
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path / "cut", data, recipe, listeners=(lambda r: 1 // (4 - r["step"]),))
    trained(tmp_path / "cut", data, recipe)
    assert same(state_of(tmp_path / "cut"), state_of(tmp_path / "whole"))


def test_a_run_whose_batches_another_process_packs_is_the_same_run(
    data: Path, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues from the batches it has learned from, although more were formed."""

    def ahead(setup: Setup, batches: Batches) -> Prefetched:
        return Prefetched(batches, partial(training_batches, setup.data, setup.recipe))

    monkeypatch.setattr(Setup, "ahead", ahead)
    run, validate = tmp_path / "run", validator(data, RECIPE)
    with pytest.raises(ZeroDivisionError):
        trained(run, data, RECIPE, validate, listeners=(lambda r: 1 // (6 - r["step"]),))
    trained(run, data, RECIPE, validate)
    assert same(state_of(run), state_of(undisturbed))
    assert journal(run) == journal(undisturbed)


@pytest.mark.parametrize("cadence", [{"save_every": 4}, {"save_every": 4, "validate_every": 3}])
def test_a_run_that_diverges_stops_before_anything_of_it_is_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cadence: dict[str, int]
) -> None:
    recipe = RECIPE.but(log_every=10, validate_every=10).but(**cadence)
    steps = itertools.count(1)

    def diverging(steps_of_run: Steps, optimizer: FlatAdam, *others: Any) -> Loss:
        loss = update(steps_of_run, optimizer, *others)
        if next(steps) == 6:
            optimizer.master[5] = math.nan
        return loss

    monkeypatch.setattr("regard.training.update", diverging)
    with pytest.raises(TrainingError, match="training diverged"):
        trained(tmp_path / "run", data, recipe, validator(data, recipe))
    monkeypatch.undo()
    assert [path.name for path in checkpoints.paths(tmp_path / "run" / "checkpoints")] == ["step-4"]
    assert max(record["step"] for record in read_journal(tmp_path / "run" / "journal.jsonl")) <= 4
    trained(tmp_path / "run", data, recipe)  # and what was kept is as good as ever
    trained(tmp_path / "straight", data, recipe)
    assert same(state_of(tmp_path / "run"), state_of(tmp_path / "straight"))


def test_what_has_diverged_is_said_with_step_rate_and_remedy() -> None:
    optimizer = FlatAdam(model_of(), CALM.training, torch.float32)
    stop_unless_finite(5.0, optimizer, 7, 0.01)
    for loss in (math.nan, math.inf):
        with pytest.raises(TrainingError, match=rf"step 7: the loss is {loss}: .* rate 1\.00e-02"):
            stop_unless_finite(loss, optimizer, 7, 0.01)
    optimizer.master[3] = -math.inf
    with pytest.raises(TrainingError, match=r"some weights are not numbers.* training\.warmup"):
        stop_unless_finite(5.0, optimizer, 7, 0.01)


def test_training_ends_early_where_validation_no_longer_improves(
    data: Path, tmp_path: Path
) -> None:
    """Stopped and resumed it ends at the same step, and the same command does no more."""
    losses = {2: 3.0, 4: 2.0, 6: 2.5, 8: 2.0, 10: 1.0}  # the second best is no better
    recipe = RECIPE.but(validate_every=2, patience=2, save_every=3)

    def of_step(run: Run) -> Callable[[Transformer], dict[str, Any]]:
        steps = iter(step for step in losses if step > begun)
        return lambda _: {"loss": losses[next(steps)]}

    def ended(folder: Path, **options: Any) -> list[str]:
        said: list[str] = []
        run = Run(folder, recipe, data, warn=said.append, **options)
        try:
            train(run, of_step(run))
        finally:
            run.close()
        return said

    begun = 0
    assert ended(tmp_path / "whole") == ["step 8: no better validation in 2: the end"]
    assert open_model(tmp_path / "whole").manifest["averaged"] == [3, 6, 8]
    with pytest.raises(ZeroDivisionError):
        ended(tmp_path / "cut", listeners=(lambda r: 1 // (7 - r["step"]),))
    begun = 6
    ended(tmp_path / "cut")
    assert same(state_of(tmp_path / "cut"), state_of(tmp_path / "whole"))
    begun = 8
    before = (tmp_path / "cut" / "model.safetensors").read_bytes()
    ended(tmp_path / "cut")
    assert (tmp_path / "cut" / "model.safetensors").read_bytes() == before
    assert newest(tmp_path / "cut" / "checkpoints", 1, pytest.fail)[0].step == 8
