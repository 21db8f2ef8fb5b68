"""Training by 8 and by 64 processes, of which one at a time is there: the others send nothing.

PyTorch's fake process group takes part in every exchange and leaves the tensors as they are.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from regard.data.batches import Batches, BatchShare
from regard.data.pairs import Pairs
from regard.errors import TrainingError
from regard.machine.processes import Processes
from regard.recipe import Recipe
from regard.run.sharding import ShardedAdam, model_and_optimizer
from regard.steps import steps_for
from regard.training import Loss, update
from regard.transformer import Transformer
from run.copying import RECIPE, prepared

WIDE = RECIPE.but(layout="packed", row_length=16, source_tokens=1024, target_tokens=1024)
VOCABULARY = 269
RANKS = [(0, 8), (7, 8), (0, 64), (63, 64)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often this process has exchanged what with the others; integers are the host's."""
    counted: Counter[str] = Counter()
    for name in ("all_reduce", "all_gather_single", "reduce_scatter_single", "broadcast"):

        def counting(tensor: Any, *others: Any, name: str = name, real: Any = None) -> Any:
            of_host = not tensor.is_floating_point()
            counted["host" if of_host else name] += 1
            done = real(tensor, *others)
            if of_host and name == "all_reduce":
                tensor[1:3] += 100  # tokens of the others: without any, 0 would be divided by 0
            return done

        real = getattr(dist, name)
        monkeypatch.setattr(dist, name, lambda *given, c=counting, r=real: c(*given, real=r))
    yield counted
    dist.destroy_process_group()


class Rank:
    """One process of many."""

    def __init__(self, rank: int, count: int, shard: bool, data: Path, recipe: Recipe = WIDE):
        store = FakeStore()
        dist.init_process_group("fake", rank=rank, world_size=count, store=store)
        self.processes, cpu = Processes(rank, count, store), torch.device("cpu")
        self.model, self.optimizer = model_and_optimizer(
            recipe, VOCABULARY, torch.float32, cpu, self.processes, shard
        )
        self.optimizer.give(self.processes.give)
        self.steps = steps_for(self.model, self.optimizer, recipe, cpu, torch.float32, pytest.fail)
        share = BatchShare.even(rank, count, recipe.training.accumulate, 1)
        self.batches = Batches(
            Pairs.open(data, "train"), recipe.data, 1, layout="packed", share=share
        )

    def update(self) -> Loss:
        return update(self.steps, self.optimizer, self.batches.take(1), 1e-3, self.processes)


@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize(("rank", "count"), RANKS)
def test_a_rank_takes_its_share_and_exchanges_little(
    rank: int, count: int, shard: bool, data: Path, exchanges: Counter[str]
) -> None:
    one = Rank(rank, count, shard, data)
    for number in range(4):
        exchanges.clear()
        loss = one.update()
        assert torch.isfinite(loss.smoothed)
        layers = 2 * WIDE.model.layers
        gathered = exchanges["all_gather_single"], exchanges["reduce_scatter_single"]
        if not shard:
            assert exchanges == {"host": 1, "all_reduce": 2}  # the losses, and the gradient
        elif number < 2:  # before each exchange they agree that memory suffices
            assert exchanges["host"] == 1 + sum(gathered)
        else:
            assert exchanges["host"] == 1
        assert not shard or gathered == (2 * layers + 1, layers + 1)
    assert one.optimizer.is_finite()


@pytest.mark.parametrize(("rank", "count"), RANKS)
def test_a_divided_model_is_whole_again(
    rank: int, count: int, data: Path, exchanges: Counter[str]
) -> None:
    """Each matrix has its size, though many ranks have no row of it."""
    one = Rank(rank, count, True, data)
    one.update()
    optimizer = one.optimizer
    assert isinstance(optimizer, ShardedAdam)
    shapes = {n: p.shape for n, p in Transformer(WIDE.model, VOCABULARY).named_parameters()}
    assert {n: p.shape for n, p in optimizer.whole_model().named_parameters()} == shapes
    saved = optimizer.named_weights()
    assert {n: w.shape for n, w in saved.items()} == (shapes if rank == 0 else {})
    assert set(optimizer.state()) == ({"step", "exp_avg", "exp_avg_sq"} if rank == 0 else set())


def test_memory_that_runs_out_late_ends_a_divided_run(
    data: Path, exchanges: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait in an exchange of weights by then, so none may try again."""
    one = Rank(1, 8, True, data)
    one.update()
    one.update()

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(one.steps._whole, "loss", full)
    with pytest.raises(TrainingError, match="memory ran out, although two updates"):
        one.update()
