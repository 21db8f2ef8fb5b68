"""A model divided among processes is trained as one that each has whole, and saved as that is."""

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from regard.data.batches import Batch
from regard.errors import RecipeError, TrainingError
from regard.files.tensors import read_tensors
from regard.machine.devices import refuse_too_large
from regard.machine.processes import Processes, together
from regard.measure.outline import Memory
from regard.measure.plan import plan
from regard.recipe import Recipe
from regard.run.checkpoints import Checkpoint, newest
from regard.run.run import Run
from regard.run.setup import Setup
from regard.run.sharding import model_and_optimizer
from regard.steps import batch_loss, steps_for
from regard.training import update
from regard.transformer import Transformer
from run.copying import needs_int8, prepared, strings, train_in_fork, trained
from run.ranks import ended, finished, started
from run.test_processes import (
    CALM,
    assert_same_run,
    events,
    stopping_at,
    train_together,
    weights,
)

SHORT = CALM.but(steps=6, save_every=2, validate_every=10**6, validate_sentences=0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"), CALM, strings(397, seed=1))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    train_in_fork(run, data, SHORT)
    return run


def train_divided(*arguments: Any, **options: Any) -> None:
    train_together(*arguments, shard=True, **options)


def difference(one: Path, other: Path, steps: int = SHORT.training.steps) -> float:
    mine, theirs = weights(one, steps), weights(other, steps)
    return float((mine - theirs).norm() / theirs.norm())


@pytest.mark.parametrize(("count", "layout"), [(2, "packed"), (4, "grouped")])
def test_the_updates_and_validations_are_those_of_one_process(
    count: int, layout: str, data: Path, tmp_path: Path
) -> None:
    recipe = CALM.but(layout=layout, steps=8, validate_every=4)
    train_in_fork(tmp_path / "alone", data, recipe, validated=True)
    finished(count, train_divided, tmp_path / "run", data, recipe, stderr=tmp_path / "log")
    assert_same_run(tmp_path / "run", tmp_path / "alone", 8)
    assert events(tmp_path / "run", "start")[0]["shares"] == count


FIELDS = {
    "norm": "pre", "activation": "swish", "embeddings": "apart", "output_bias": True,
    "decoder_d_ff": 7, "first_embedding": "pairs",
}  # fmt: skip


@pytest.mark.parametrize("fields", [{}, FIELDS], ids=["paper", "fields"])
def test_accumulated_batches_and_learned_positions(
    fields: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    """Three processes, so that matrices end in shards of unlike sizes, and some biases in none."""
    recipe = SHORT.but(accumulate=6, steps=4, d_model=4, positions="learned", max_positions=257)
    recipe = recipe.but(save_every=0, **fields)
    train_in_fork(tmp_path / "alone", data, recipe)
    finished(3, train_divided, tmp_path / "run", data, recipe, stderr=tmp_path / "log")
    assert events(tmp_path / "run", "start")[0]["cuts"] == 1
    assert difference(tmp_path / "run", tmp_path / "alone", 4) < 1e-5


@pytest.mark.parametrize(
    "precision",
    [
        "bf16",
        pytest.param("int8", marks=needs_int8),
    ],
)
def test_in_fewer_bits_the_master_is_that_of_one_process(
    data: Path, tmp_path: Path, precision: str
) -> None:
    recipe = SHORT.but(precision=precision)
    train_in_fork(tmp_path / "alone", data, recipe)
    finished(2, train_divided, tmp_path / "run", data, recipe, stderr=tmp_path / "log")
    begun = trained(tmp_path / "begun", data, recipe.but(steps=1, save_every=1))
    moved = weights(tmp_path / "alone", 6) - torch.cat([t.flatten() for t in begun.values()])
    wrong = weights(tmp_path / "run", 6) - weights(tmp_path / "alone", 6)
    assert wrong.norm() < 0.2 * moved.norm()


def train_until(step: int, shard: bool, *arguments: Any) -> None:
    train_together(*arguments, shard=shard, listeners=(stopping_at(step),))


def test_a_run_goes_on_divided_or_not_after_the_death_of_a_process(
    alone: Path, data: Path, tmp_path: Path
) -> None:
    run, log = tmp_path / "run", tmp_path / "log"
    for shard, until in ((True, 3), (False, 5)):
        dying = started(2, train_until, until, shard, run, data, SHORT, stderr=log)
        assert ended(dying) == [-signal.SIGKILL, 2]
    assert log.read_text().count("regard: rank 1: rank 0 has ended, and the others cannot") == 2
    finished(3, train_divided, run, data, SHORT, stderr=log)
    begun = events(run, "start")
    assert [(r["step"], r["processes"], r["shares"]) for r in begun] == [
        (0, 2, 2),
        (2, 2, 1),
        (4, 3, 3),
    ]
    assert difference(run, alone) < 1e-5


def tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    found = read_tensors(checkpoint.path / "optimizer.safetensors")
    state = {name: found[name] for name in ("step", "exp_avg", "exp_avg_sq")}
    return checkpoint.weights() | state


def test_a_checkpoint_is_the_same_as_of_one_process(
    alone: Path, data: Path, tmp_path: Path
) -> None:
    finished(2, train_divided, tmp_path / "run", data, SHORT, stderr=tmp_path / "log")
    mine, theirs = (
        tensors(newest(run / "checkpoints", 1, pytest.fail)[0]) for run in (tmp_path / "run", alone)
    )
    assert mine.keys() == theirs.keys()
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-5)


def train_to(step: int, run: Path, data: Path, recipe: Recipe) -> None:
    """Train until a signal comes after this step."""

    def listen(record: Any) -> None:
        if record["event"] == "step" and record["step"] == step:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        train_divided(run, data, recipe, listeners=(listen,))
    except BaseException as stopped:
        raise SystemExit(getattr(stopped, "status", 1)) from None


def test_stopped_and_resumed_it_ends_in_the_same_bits(data: Path, tmp_path: Path) -> None:
    recipe, log = SHORT.but(dropout=0.3, save_every=0, validate_every=2), tmp_path / "log"
    stopping = started(2, train_to, 2, tmp_path / "run", data, recipe, stderr=log)
    assert ended(stopping) == [143, 143]
    for run in ("run", "whole"):
        finished(2, train_divided, tmp_path / run, data, recipe, stderr=log)
    assert [record["step"] for record in events(tmp_path / "run", "start")] == [0, 3]
    mine, theirs = (
        tensors(newest(tmp_path / run / "checkpoints", 1, pytest.fail)[0])
        for run in ("run", "whole")
    )
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


class _Full(torch.autograd.Function):
    """The identity, except that memory runs out in its forward or its backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: bool) -> Tensor:
        if forward:
            raise torch.OutOfMemoryError("no room")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> Any:
        raise torch.OutOfMemoryError("no room")


def train_short_of_memory(forward: bool, rows: int, *arguments: Any) -> None:
    """In the second process, and there between two layers, where the others wait for it."""

    def losses(model: Transformer, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        if len(batch.labels) <= rows or os.environ["RANK"] != "1":
            return batch_loss(model, batch, smoothing)
        hook = model.decoder[0].register_forward_hook(lambda *args: _Full.apply(args[-1], forward))
        try:
            return batch_loss(model, batch, smoothing)
        finally:
            hook.remove()

    import regard.steps

    regard.steps.batch_loss = losses
    train_divided(*arguments)


@pytest.mark.parametrize("forward", [True, False])
def test_what_does_not_fit_the_memory_of_one_is_cut_smaller_by_all(
    forward: bool, alone: Path, data: Path, tmp_path: Path
) -> None:
    arguments = forward, 9, tmp_path / "run", data, SHORT
    finished(2, train_short_of_memory, *arguments, stderr=tmp_path / "log")
    cuts = [record["cuts"] for record in events(tmp_path / "run", "out of memory")]
    assert cuts
    assert cuts == [4, 8][: len(cuts)]
    assert difference(tmp_path / "run", alone) < 1e-5


WIDE = CALM.but(d_model=64, d_ff=256, layers=2)


def weigh(file: Path, data: Path, shard: bool) -> None:
    """Write down the bytes of all tensors in the midst of a step; then train, and plan."""
    with together() as processes:
        run = Run(file.parent / f"run-{shard}", WIDE, data, processes=processes, shard=shard)
        model, optimizer, batches, _ = run.resume_or_start()
        setup = run.setup
        steps = steps_for(model, optimizer, WIDE, setup.device, setup.dtype, pytest.fail)
        [batch] = batches.take(1)
        optimizer.make_way()
        steps.learn(batch)
        held = [thing for thing in gc.get_objects() if isinstance(thing, Tensor)]
        held += [tensor.grad for tensor in held if tensor.grad is not None]
        sizes = {}
        for tensor in held:
            local = getattr(tensor, "_local_tensor", tensor).untyped_storage()
            sizes[local.data_ptr()] = local.nbytes()
        update(steps, optimizer, [batch], 1e-3, processes)
        planned = plan(WIDE, data, file.parent / "none", processes, shard=shard)
        mine = sum(sizes.values()), sum(planned.memory)
        for held_bytes, planned_bytes in processes.all(mine):
            if processes.first:
                with file.open("a") as to:
                    print(held_bytes, planned_bytes, file=to)


def test_a_process_holds_its_shard_as_planned(data: Path, tmp_path: Path) -> None:
    """A third less than half of it all, for there is no second gradient."""
    for shard in (False, True):
        finished(2, weigh, tmp_path / "bytes", data, shard, stderr=tmp_path / "log")
    found = [
        [int(n) for n in line.split()] for line in (tmp_path / "bytes").read_text().splitlines()
    ]
    count = Memory.of(1, torch.float32)
    assert sum(count) == 20
    for held, planned in found:
        assert planned < held < 1.15 * planned
    assert found[2][1] == found[3][1] == pytest.approx(found[0][1] * 16 / 20 / 2, rel=1e-3)


def disagree(run: Path, data: Path) -> None:
    with together() as processes:
        Run(run, CALM, data, processes=processes, shard=processes.first).resume_or_start()


def test_all_or_none_divide(data: Path, tmp_path: Path) -> None:
    assert ended(started(2, disagree, tmp_path / "run", data, stderr=tmp_path / "log")) == [2, 2]
    assert "shard differs: " in (tmp_path / "log").read_text()


def test_one_process_has_it_all_and_says_so(alone: Path, data: Path, tmp_path: Path) -> None:
    said: list[str] = []
    trained(tmp_path / "run", data, SHORT, shard=True, warn=said.append)
    assert said == ["--shard needs several processes of torchrun: this one keeps the whole model"]
    assert torch.equal(weights(tmp_path / "run", 6), weights(alone, 6))


def test_the_memory_asked_for_is_that_of_a_share() -> None:
    cpu = torch.device("cpu")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    refuse_too_large(memory // 9, cpu, shards=2)
    with pytest.raises(TrainingError, match=r"GB in each process to train, .* and --shard"):
        refuse_too_large(memory // 7, cpu, shards=2)


def test_muon_is_refused_as_it_needs_whole_matrices(data: Path) -> None:
    with pytest.raises(TrainingError, match=r"leave out --shard, or .*= adam in a new run"):
        Setup.open(SHORT.but(optimizer="muon"), data, Processes(0, 2), shard=True)


def test_halves_of_batches_are_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(arithmetic: str, threads: int) -> Setup:
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        return Setup.open(SHORT.but(arithmetic=arithmetic), data, Processes(0, 2), shard=True)

    with pytest.raises(RecipeError, match=r"halves divides batches .* set it to auto$"):
        opened("halves", 2)
    with pytest.raises(RecipeError, match=r"loops divides .* auto or give --threads 1"):
        opened("loops", 2)
    opened("loops", 1)
    opened("auto", 2)


def test_an_older_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FSDPModule, "reset_iter_state")
    two = Processes(0, 2)
    _, optimizer = model_and_optimizer(
        CALM, 300, torch.float32, torch.device("cpu"), two, shard=True
    )
    with pytest.raises(TrainingError, match=r"--shard: PyTorch .* install 2\.13 or later"):
        optimizer.give(lambda tensor: None)


def test_weights_that_are_no_numbers_end_all(data: Path, tmp_path: Path) -> None:
    statuses = ended(started(2, diverge, tmp_path / "run", data, stderr=tmp_path / "log"))
    assert statuses == [2, 2]
    assert "step 1: some weights are not numbers" in (tmp_path / "log").read_text()
    assert not newest(tmp_path / "run" / "checkpoints", 1, pytest.fail)


def diverge(run: Path, data: Path) -> None:
    import regard.training

    def broken(steps: Any, optimizer: Any, *others: Any) -> Any:
        found = update(steps, optimizer, *others)
        if os.environ["RANK"] == "1":
            next(iter(optimizer._shards.mine.values())).fill_(float("nan"))
        return found

    regard.training.update = broken
    train_divided(run, data, SHORT.but(save_every=1))
