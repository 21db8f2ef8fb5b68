"""The figures of a plan are those of the training, and the trial leaves no trace."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.data.batches import Batch
from regard.errors import TrainingError
from regard.machine.processes import together
from regard.measure.outline import Disk, Memory, Parameters
from regard.measure.plan import plan
from regard.optimizer import FlatAdam
from regard.paper import parameters
from regard.steps import batch_loss
from regard.transformer import Transformer
from run.copying import RECIPE, prepared, trained
from run.ranks import finished

WIDER = RECIPE.but(layers=2, d_model=64, d_ff=128, heads=4, steps=7)
VOCABULARY = 269


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_parameters_are_those_of_the_modules(positions: str) -> None:
    recipe = WIDER.but(positions=positions).model
    counted = Parameters.of(recipe, VOCABULARY)
    model = Transformer(recipe, VOCABULARY)
    for count, part in zip(counted, (model.embedding, model.encoder, model.decoder), strict=True):
        assert count == sum(p.numel() for p in part.parameters())
    assert sum(counted) == parameters(recipe, VOCABULARY)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_is_what_the_optimizer_keeps(dtype: torch.dtype) -> None:
    model = Transformer(WIDER.model, VOCABULARY)
    optimizer = FlatAdam(model, WIDER.training, dtype)
    tensors = [t for t in vars(optimizer).values() if isinstance(t, Tensor)]
    tensors += [p.grad for p in model.parameters()]  # type: ignore[misc]
    tensors += [p.data for p in model.parameters()] + list(optimizer.state().values())
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    step_count = 4
    assert sum(Memory.of(model.parameter_count, dtype)) == sum(storages.values()) - step_count


def test_disk_is_what_a_run_leaves(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    count = parameters(WIDER.model, VOCABULARY)
    before = Disk.of(WIDER, count, run)
    trained(run, data, WIDER)
    found = [size(path) for path in (run / "checkpoints").iterdir()]
    assert len(found) == before.checkpoints - 1 == WIDER.training.keep
    assert found == pytest.approx([before.checkpoint] * len(found), rel=0.05)
    assert size(run / "model.safetensors") == pytest.approx(before.model, rel=0.05)
    assert size(run) == pytest.approx(before.needed - before.checkpoint, rel=0.05)
    after = Disk.of(WIDER, count, run)
    assert after.needed == before.needed - len(found) * before.checkpoint
    assert after.free == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)


def test_the_steps_that_a_time_would_not_allow_take_no_disk(tmp_path: Path) -> None:
    disk = Disk.of(WIDER.but(minutes=30.0, steps=2**31 - 1), 10**6, tmp_path)
    assert disk.needed == disk.checkpoints * disk.checkpoint + disk.model


def size(path: Path) -> int:
    """Bytes of the files at and below a path."""
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def test_a_plan_leaves_no_trace(data: Path, tmp_path: Path) -> None:
    recipe, run = WIDER.but(dropout=0.3), tmp_path / "run"
    expected = trained(tmp_path / "straight", data, recipe)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = plan(recipe, data, run)
    assert (torch.get_rng_state() == before).all()
    assert not run.exists()
    trained(run, data, recipe.but(steps=3), accept_changes=True)
    later = plan(recipe, data, run)
    assert [first.steps_left, later.steps_left] == [7, 4]
    found = trained(run, data, recipe, accept_changes=True)
    assert found.keys() == expected.keys()
    assert all(found[name].equal(expected[name]) for name in found)


def test_time_and_operations_reach_to_the_last_step(data: Path, tmp_path: Path) -> None:
    found = plan(WIDER.but(accumulate=2), data, tmp_path)
    assert found.seconds_left == found.step_seconds * 7 > 0
    assert found.cost.counted_flop == found.flop_per_step * 7
    speed = found.single_precision_flop_per_second
    assert found.cost.estimated_flop == found.step_seconds * 7 * 1 * speed > 0
    assert plan(WIDER, data, tmp_path).flop_per_step == found.flop_per_step / 2


def test_operations_are_those_of_the_run_with_any_sub_words(data: Path, tmp_path: Path) -> None:
    plain, redrawn = (
        plan(WIDER.but(subword_dropout=share), data, tmp_path).flop_per_step for share in (0.0, 0.3)
    )
    assert redrawn == pytest.approx(plain)


def test_the_memory_of_the_largest_batch_is_measured(data: Path, tmp_path: Path) -> None:
    """All attention weights are kept for the backward pass."""
    one = WIDER.but(layers=1, layout="packed")
    small = one.but(row_length=16, source_tokens=512, target_tokens=512)
    large = small.but(row_length=512, source_tokens=2048, target_tokens=2048)
    taken = [plan(recipe, data, tmp_path).part_memory for recipe in (small, large)]
    weights = 3 * 4 * 4 * 512 * 512 * 4  # attentions, rows, heads, queries, keys, bytes
    assert weights < taken[1] - taken[0] < 10 * weights


def refusing(rows: int) -> Callable[..., Any]:
    """The batch loss on a device that has memory for this many rows."""

    def losses(model: Transformer, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        if len(batch.labels) > rows:
            raise MemoryError
        return batch_loss(model, batch, smoothing)

    return losses


@pytest.mark.parametrize(("rows", "parts"), [(7, 1), (6, 2), (2, 4), (1, 8)])
def test_what_does_not_fit_is_halved_until_it_does(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, parts: int
) -> None:
    recipe = WIDER.but(layout="packed", row_length=16, source_tokens=112, target_tokens=120)
    monkeypatch.setattr("regard.steps.batch_loss", refusing(rows))
    said: list[str] = []
    found = plan(recipe, data, tmp_path, tell=said.append)
    assert found.micro_batches == found.paper_micro_batches == parts
    assert found.part == (-(-7 // parts), 16, 16)
    assert found.paper_accumulate == 223  # x 112 = 24,976
    halvings = [line for line in said if line.startswith("it does not fit the memory")]
    assert 2 ** len(halvings) == parts


def test_no_fewer_parts_are_tried_than_are_asked_for(data: Path, tmp_path: Path) -> None:
    recipe = WIDER.but(layout="packed", row_length=16, source_tokens=112, target_tokens=120)
    assert plan(recipe, data, tmp_path, micro_batches=8).micro_batches == 8


def test_a_batch_that_would_fill_a_cpus_memory_is_not_tried(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = WIDER.but(layers=1, layout="packed", row_length=256)
    recipe = recipe.but(source_tokens=2048, target_tokens=2048)
    whole = plan(recipe, data, tmp_path)
    room = sum(whole.memory) + whole.part_memory // 2
    tried = []

    def losses(model: Transformer, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        tried.append(len(batch.labels))
        return batch_loss(model, batch, smoothing)

    monkeypatch.setattr("regard.measure.plan.free_bytes", lambda device: room)
    monkeypatch.setattr("regard.steps.batch_loss", losses)
    found = plan(recipe, data, tmp_path)
    assert found.micro_batches in (2, 4)
    assert max(tried) == whole.part[0] // found.micro_batches
    assert found.part_memory < whole.part_memory


def test_not_even_a_row(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.steps.batch_loss", refusing(rows=0))
    with pytest.raises(TrainingError, match=r"not even one row .* lower data\.row_length"):
        plan(RECIPE, data, tmp_path)


def plan_together(data: Path, out: Path) -> None:
    with together() as processes:
        recipe = WIDER.but(layout="packed", row_length=16, source_tokens=112, target_tokens=112)
        found = plan(recipe.but(accumulate=3), data, out, processes)
        every = processes.all((found.step_seconds, found.part, found.part_memory, found.timed))
        assert len(set(every)) == 1
        assert found.processes == 2
        assert found.part == (4, 16, 16)  # three batches are six halves
        assert found.micro_batches == found.paper_micro_batches == 1
    os._exit(0)


def test_processes_plan_together(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    finished(2, plan_together, data, run, stderr=tmp_path / "log")
    assert not run.exists()
