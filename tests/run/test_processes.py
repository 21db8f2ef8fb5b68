"""Several processes train one model: updates, checkpoints, and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.data.batches import Batches
from regard.errors import TrainingError
from regard.machine.interrupt import interruptible
from regard.machine.processes import together
from regard.measure.validation import validator
from regard.recipe import Recipe
from regard.run.checkpoints import newest
from regard.run.journal import Record, read_journal
from regard.run.run import Run
from regard.steps import batch_loss
from regard.training import train
from run.copying import RECIPE, prepared, strings, train_in_fork, trained
from run.ranks import ended, finished, started

STEPS = 16
CALM = RECIPE.but(
    steps=STEPS,
    dropout=0.0,
    warmup_steps=1000,  # a faster rise amplifies differences of rounding
    validate_every=8,
    save_every=4,
    source_tokens=200,
    target_tokens=200,
    row_length=16,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"), CALM, strings(397, seed=1))


def train_together(run: Path, data: Path, recipe: Recipe, **options: Any) -> None:
    """Do what `regard train` does in each process."""
    with together() as processes, interruptible(patient=True) as interrupt:
        if options.pop("signalled", None) == processes.rank:
            options["listeners"] = ()
            os.kill(os.getpid(), signal.SIGTERM)
        validate = validator(data, recipe, processes)
        train(Run(run, recipe, data, interrupt=interrupt, processes=processes, **options), validate)


def weights(run: Path, step: int = STEPS) -> Tensor:
    found = {checkpoint.step: checkpoint for checkpoint in newest(run / "checkpoints", 9, print)}
    return torch.cat([tensor.flatten() for tensor in found[step].weights().values()])


def events(run: Path, event: str) -> list[Record]:
    return [record for record in read_journal(run / "journal.jsonl") if record["event"] == event]


def assert_same_run(one: Path, other: Path, steps: int = STEPS) -> None:
    """Assert equal tokens, and losses and weights equal up to the rounding of sums."""
    counted = ("step", "source_tokens", "target_tokens", "epoch")
    tokens = [[[r[key] for key in counted] for r in events(run, "step")] for run in (one, other)]
    assert tokens[0] == tokens[1]
    for event in ("step", "validation"):
        for mine, theirs in zip(events(one, event), events(other, event), strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    mine, theirs = weights(one, steps), weights(other, steps)
    assert (mine - theirs).norm() < 1e-5 * theirs.norm()


@pytest.fixture(scope="module", params=["grouped", "packed"])
def alone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, data: Path
) -> Path:
    run = tmp_path_factory.mktemp("alone") / request.param
    recipe = CALM.but(layout=request.param)
    train_in_fork(run, data, recipe, validated=True)
    return run


def test_the_updates_are_those_of_one_process(alone: Path, data: Path, tmp_path: Path) -> None:
    recipe, count = CALM.but(layout=alone.name), {"grouped": 4, "packed": 2}[alone.name]
    finished(count, train_together, tmp_path / "run", data, recipe, stderr=tmp_path / "log")
    assert_same_run(tmp_path / "run", alone)
    assert events(tmp_path / "run", "start")[0]["processes"] == count


def test_micro_batches_make_the_updates_of_whole_ones(
    alone: Path, data: Path, tmp_path: Path
) -> None:
    recipe = CALM.but(layout=alone.name)
    train_in_fork(tmp_path / "run", data, recipe, validated=True, micro_batches=4)
    assert_same_run(tmp_path / "run", alone)


def test_accumulated_batches_are_shared_out_whole(data: Path, tmp_path: Path) -> None:
    """Both processes begin with the embedding that the first one makes of the pairs."""
    recipe = CALM.but(accumulate=4, steps=5, first_embedding="pairs")
    train_in_fork(tmp_path / "alone", data, recipe)
    finished(2, train_together, tmp_path / "run", data, recipe, stderr=tmp_path / "log")
    assert events(tmp_path / "run", "start")[0]["cuts"] == 1
    mine, theirs = weights(tmp_path / "run", 5), weights(tmp_path / "alone", 5)
    assert (mine - theirs).norm() < 1e-5 * theirs.norm()


def test_all_processes_cool_down_as_the_first_one_plans(data: Path, tmp_path: Path) -> None:
    recipe = CALM.but(steps=10**6, minutes=0.04, cooldown=0.5, save_every=0)
    finished(2, train_together, tmp_path / "run", data, recipe, stderr=tmp_path / "log")
    [plan], [end] = events(tmp_path / "run", "cooldown"), events(tmp_path / "run", "finish")
    assert plan["step"] < end["step"] <= plan["ends"]


class Recording(Batches):
    """Batches that write the pairs they yield to a file, by their place in the data."""

    file: Path

    def _assembled(self, pairs: Any, rows: Any) -> Any:
        with self.file.open("a") as file:
            place = [self._epoch, self._window, self._batch]
            file.write(json.dumps([place, pairs.tolist()]) + "\n")
        return super()._assembled(pairs, rows)


def train_recording(file: Path, *arguments: Any, **options: Any) -> None:
    Recording.file = file
    from regard.data import training_data

    training_data.Batches = Recording  # type: ignore[misc]
    train_together(*arguments, **options)


def stopping_at(step: int) -> Any:
    def listen(record: Record) -> None:
        if record["event"] == "step" and record["step"] == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return listen


def train_until(step: int, *arguments: Any) -> None:
    train_recording(*arguments, listeners=(stopping_at(step),))


def test_a_run_goes_on_with_any_number_of_processes_and_meets_every_pair_once_an_epoch(
    data: Path, tmp_path: Path
) -> None:
    """Two processes, the first of which is killed; then four, likewise; then one to the end."""
    run, seen, log = tmp_path / "run", tmp_path / "seen", tmp_path / "log"
    recipe = CALM.but(steps=38, save_every=10, validate_every=10**6, validate_sentences=0)
    for count, until in ((2, 12), (4, 23)):
        statuses = ended(started(count, train_until, until, seen, run, data, recipe, stderr=log))
        assert statuses[0] == -signal.SIGKILL
        assert set(statuses[1:]) == {2}
    finished(1, train_recording, seen, run, data, recipe, stderr=log)
    assert [record["step"] for record in events(run, "start")] == [0, 10, 20]
    assert [record["processes"] for record in events(run, "start")] == [2, 4, 1]
    given: dict[Any, set[int]] = defaultdict(set)  # a repeated step counts once
    for line in seen.read_text().splitlines():
        place, pairs = json.loads(line)
        given[tuple(place)] |= set(pairs)
    size, epochs = events(run, "start")[0]["pairs"], events(run, "step")[-1]["epoch"]
    assert epochs > 3
    for epoch in range(int(epochs)):
        pairs = [pair for place, some in given.items() if place[0] == epoch for pair in some]
        assert sorted(pairs) == list(range(size))
    train_in_fork(tmp_path / "alone", data, recipe)
    mine, theirs = weights(run, 38), weights(tmp_path / "alone", 38)
    assert (mine - theirs).norm() < 1e-5 * theirs.norm()


def test_a_signal_to_one_makes_all_save_and_leave(data: Path, tmp_path: Path) -> None:
    def statuses(signalled: int | None) -> list[int]:
        work = started(2, train_signalled, signalled, run, data, recipe, stderr=tmp_path / "log")
        return ended(work)

    run, recipe = tmp_path / "run", CALM.but(dropout=0.3)
    assert statuses(1) == [143, 143]
    assert [found.step for found in newest(run / "checkpoints", 9, pytest.fail)] == [1]
    assert statuses(None) == [0, 0]
    whole = tmp_path / "whole"
    finished(2, train_together, whole, data, recipe, stderr=tmp_path / "log")
    # equal bits: each process continues its own sequence of dropout masks
    assert torch.equal(weights(run), weights(whole))


def train_signalled(signalled: int | None, *arguments: Any) -> None:
    try:
        train_together(*arguments, signalled=signalled)
    except BaseException as stopped:
        raise SystemExit(getattr(stopped, "status", 1)) from None


def train_short_of_memory(rank: int, rows: int, *arguments: Any) -> None:
    def losses(model: Any, batch: Any, smoothing: float) -> Any:
        if len(batch.labels) > rows and int(os.environ.get("RANK", "0")) == rank:
            raise torch.OutOfMemoryError("no room")
        return batch_loss(model, batch, smoothing)

    import regard.steps

    regard.steps.batch_loss = losses
    train_together(*arguments)


def test_what_does_not_fit_the_memory_of_one_is_cut_smaller_by_all(
    data: Path, tmp_path: Path
) -> None:
    recipe = CALM.but(validate_every=10**6, validate_sentences=0)
    train_in_fork(tmp_path / "alone", data, recipe)
    run = tmp_path / "run"
    finished(2, train_short_of_memory, 1, 9, run, data, recipe, stderr=tmp_path / "log")
    cuts = [(record["step"], record["cuts"]) for record in events(run, "out of memory")]
    assert cuts
    assert [cut for _, cut in cuts] == [4, 8][: len(cuts)]
    mine, theirs = weights(run), weights(tmp_path / "alone")
    assert (mine - theirs).norm() < 1e-5 * theirs.norm()
    [found] = newest(run / "checkpoints", 1, pytest.fail)
    assert found.manifest["state"]["cuts"] == cuts[-1][1]  # kept after a restart


def test_a_model_that_never_fits_is_refused(data: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def losses(*_: Any) -> Any:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: not enough")

    monkeypatch.setattr("regard.steps.batch_loss", losses)
    with pytest.raises(TrainingError, match="step 1: not even one row of a batch fits the memory"):
        trained(tmp_path / "run", data, CALM)


def wait_for_one_that_ended() -> None:
    """Wait as gloo was seen to wait: nothing tells the first process that the other has ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.machine.processes.SECONDS_TO_NOTICE", 0.3)
        with together() as processes:
            if not processes.first:
                os._exit(9)
            patch.setattr("torch.distributed.all_reduce", lambda _: time.sleep(600))
            processes.sum(1)


def test_a_process_that_waits_for_one_that_ended_does_not_wait_for_ever(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert ended(started(2, wait_for_one_that_ended, stderr=log)) == [2, 9]
    assert "rank 0: rank 1 has ended, and the others cannot continue" in log.read_text()


def test_torchrun_starts_all_again_when_one_is_killed_until_it_has_done_so_often_enough(
    data: Path, tmp_path: Path
) -> None:
    """By the public command: the processes continue from the newest checkpoint."""
    (tmp_path / "recipe.toml").write_text(CALM.but(steps=10**6).to_toml())
    run, log = tmp_path / "run", tmp_path / "log"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--max-restarts", "1", "--standalone", "-m", "regard", "train", "--data", str(data)),
        *("--recipe", str(tmp_path / "recipe.toml"), "--out", str(run), "--quiet"),
    ]
    with (
        log.open("w") as file,
        subprocess.Popen(command, stderr=file, env=os.environ | {"OMP_NUM_THREADS": "1"}) as agent,
    ):
        try:
            for _ in range(2):
                before = reached(run)
                while reached(run) == before:
                    assert agent.poll() is None, log.read_text()
                    time.sleep(0.1)
                children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
                ranks = {_environment(int(child))["RANK"]: int(child) for child in children}
                os.kill(ranks["1"], signal.SIGKILL)
                until = time.monotonic() + 25  # torchrun itself would kill them after 30 seconds
                while any(Path(f"/proc/{process}").exists() for process in ranks.values()):
                    assert time.monotonic() < until
                    time.sleep(0.01)
            agent.wait(10)
        finally:
            agent.kill()
    first, second = events(run, "start")
    assert second["step"] > first["step"] == 0
    said = log.read_text()
    assert "rank 0: rank 1 has ended, and the others cannot continue without it" in said


def reached(run: Path) -> int:
    """The step of the newest checkpoint."""
    return max((checkpoint.step for checkpoint in newest(run / "checkpoints", 1, print)), default=0)


def _environment(process: int) -> dict[str, str]:
    entries = Path(f"/proc/{process}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)
