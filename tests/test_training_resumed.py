"""§5: a run is the same however often it is stopped, and whatever stops it."""

import itertools
import math
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.data.prefetch import Prefetched
from regard.data.training_data import training_batches
from regard.errors import RegardError, TrainingError
from regard.files.tensors import read_tensors
from regard.machine.interrupt import Interrupt, Interrupted
from regard.measure.validation import validator
from regard.optimizer import FlatAdam
from regard.run import checkpoints
from regard.run.checkpoints import newest
from regard.run.journal import Record, read_journal
from regard.run.model_directory import open_model
from regard.run.resumption import in_words
from regard.run.run import Run
from regard.run.setup import Setup
from regard.steps import Steps
from regard.training import Loss, train, update
from regard.transformer import Transformer
from run.copying import RECIPE, journal, needs_int8, prepared, trained
from run.killing import full_at, in_fork


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    trained(run, data, validate=validator(data, RECIPE))
    return run


def state_of(run: Path) -> dict[str, Tensor]:
    """Weights, moments and random state of the newest checkpoint."""
    [found] = newest(run / "checkpoints", 1, pytest.fail)
    return found.weights() | read_tensors(found.path / "optimizer.safetensors")


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_same_seed_gives_the_same_run_to_the_bit(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    trained(tmp_path / "again", data, validate=validator(data, RECIPE))
    assert same(state_of(tmp_path / "again"), state_of(undisturbed))
    assert journal(tmp_path / "again") == journal(undisturbed)
    other = RECIPE.but(seed=2)
    trained(tmp_path / "other", data, other)
    assert not same(state_of(tmp_path / "other"), state_of(undisturbed))


STOPS = [(1, 6, 11), (2, 7), (3, 8), (4, 9), (5, 10), tuple(range(1, 12))]
"""Every step, after and before a few that are not stopped, and after and before a stop."""


def test_a_run_stopped_at_any_step_goes_on_as_if_it_had_not_been(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    in_fork(stop_at_each_step, data, tmp_path, undisturbed)


def stop_at_each_step(data: Path, folder: Path, undisturbed: Path) -> None:
    for i, stops in enumerate(STOPS):
        stop_and_go_on(data, folder / str(i), undisturbed, stops)


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


def test_a_full_disk_is_one_sentence_and_the_run_goes_on_when_there_is_room(
    data: Path, tmp_path: Path
) -> None:
    """At any write of a whole run."""
    in_fork(fill_disk_at_each_write, data, tmp_path)


def fill_disk_at_each_write(data: Path, tmp_path: Path) -> None:
    recipe = RECIPE.but(steps=3)
    trained(tmp_path / "whole", data, recipe)
    for n in itertools.count(1):
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
    monkeypatch.undo()
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


def test_people_are_told_what_is_computed_in() -> None:
    assert in_words(torch.bfloat16, "auto") == "bfloat16"
    assert in_words(torch.float32, "int8") == "int8 and float32"
