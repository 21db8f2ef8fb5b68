"""The step as a GPU takes it, on whatever computes here: one program, equal to the plain step.

That the doors go the GPU's way is asked of them; what its kernels do is for a GPU to show.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.data.batches import Batch
from regard.data.prefetch import training_batches
from regard.machine.compiled import compiled
from regard.optimizer import FlatAdam
from regard.recipe import Recipe
from regard.training import BatchLoss, batch_loss, losses_on, update
from regard.transformer import Transformer
from run.copying import RECIPE, prepared
from run.killing import PROCESSES

STEP = RECIPE.but(layout="packed", row_length=16, dropout=0.0)
VOCABULARY = 256 + 3 + 10


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


def go_the_gpus_way(patch: pytest.MonkeyPatch) -> None:
    for door in ("attention", "dropout", "residual", "cross_entropy", "linear"):
        patch.setattr(f"regard.arithmetic.{door}.on_cpu", lambda tensor: False)
    patch.setattr("regard.arithmetic.cross_entropy.CHUNK_GPU", 23)  # more than one


def losses_and_moments(
    batches: list[Batch], recipe: Recipe, dtype: torch.dtype, losses: BatchLoss
) -> tuple[Tensor, Tensor]:
    """Of a few updates; Adam's moments tell of every gradient."""
    torch.manual_seed(1)
    model = Transformer(recipe.model, VOCABULARY).train()
    optimizer = FlatAdam(model, recipe.training, dtype)
    each = [update(model, optimizer, [batch], 1e-3, 0.1, losses) for batch in batches]
    return torch.tensor([loss.per_token() for loss in each]), optimizer.state()["exp_avg"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gpus_way_gives_the_losses_and_gradients_of_the_cpus(
    data: Path, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = training_batches(data, STEP).take(3)
    plain = losses_and_moments(batches, STEP, dtype, batch_loss)
    go_the_gpus_way(monkeypatch)
    other = losses_and_moments(batches, STEP, dtype, batch_loss)
    exact = dtype == torch.float32
    torch.testing.assert_close(other[0], plain[0], rtol=1e-5 if exact else 2e-2, atol=0)
    assert (other[1] - plain[1]).norm() < (1e-5 if exact else 2e-2) * plain[1].norm()


def test_it_is_one_program_for_all_batches(data: Path) -> None:
    """In a process where no call's shapes are checked, for these checks cannot be traced."""
    process = PROCESSES.Process(target=trace, args=(data,))
    process.start()
    process.join()
    assert process.exitcode == 0  # else it has said why
    process.close()


def trace(data: Path) -> None:
    batches = training_batches(data, STEP).take(4)
    assert len({(batch.source_tokens, batch.target_tokens) for batch in batches}) > 1
    with pytest.MonkeyPatch.context() as patch:
        go_the_gpus_way(patch)
        fast = compiled(batch_loss, pytest.fail, backend="aot_eager")
        got = losses_and_moments(batches, STEP, torch.float32, fast)
        plain = losses_and_moments(batches, STEP, torch.float32, batch_loss)
    for mine, theirs in zip(got, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]


def test_nothing_in_a_step_waits_for_the_device(data: Path) -> None:
    """On a device without numbers: whatever would ask for one fails."""
    model = Transformer(RECIPE.model, VOCABULARY).to("meta").train()
    optimizer = FlatAdam(model, STEP.training, torch.bfloat16)
    batches = [batch.to("meta") for batch in training_batches(data, STEP).take(2)]
    loss = update(model, optimizer, batches, 1e-3, 0.1)
    with pytest.raises(RuntimeError, match="meta"):
        loss.per_token()  # as this does, which is asked for when the journal is written


def test_the_step_is_compiled_on_a_gpu_where_batches_have_one_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def program(*given: Any) -> Any: ...

    monkeypatch.setattr("regard.training.compiled", lambda function, warn: program)
    model, cpu, gpu = Transformer(STEP.model, VOCABULARY), torch.device("cpu"), torch.device("cuda")
    assert losses_on(cpu, model, STEP, pytest.fail) is batch_loss
    assert losses_on(gpu, model, STEP.but(layout="grouped"), pytest.fail) is batch_loss
    wide = STEP.but(row_length=1040)
    assert losses_on(gpu, model, wide, pytest.fail) is program
    assert len(model.embedding.positions) >= 1040  # so that no call needs a larger table


def test_what_cannot_be_compiled_goes_on_as_it_is_and_says_so() -> None:
    warnings: list[str] = []

    def doubled_if_positive(x: Tensor) -> Tensor:
        return 2 * x if x.sum() > 0 else x  # which way to go, a program cannot know

    fast = compiled(doubled_if_positive, warnings.append, backend="eager")
    for value in (1.0, 2.0):
        assert fast(torch.tensor([value])) == 2 * value
    [warning] = warnings
    assert warning.startswith("the step is not compiled, and so is slower: ")
    assert "\n" not in warning


@pytest.mark.gpu
def test_on_a_gpu_the_compiled_step_is_the_plain_one(data: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    batches = [batch.to("cuda") for batch in training_batches(data, STEP).take(5)]
    with torch.device("cuda"):
        plain = losses_and_moments(batches, STEP, torch.float32, batch_loss)
        fast = losses_and_moments(batches, STEP, torch.float32, compiled(batch_loss, pytest.fail))
    torch.testing.assert_close(fast[0], plain[0], rtol=1e-4, atol=0)
    assert (fast[1] - plain[1]).norm() < 1e-4 * plain[1].norm()
