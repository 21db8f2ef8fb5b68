"""A step as a GPU takes it, on whatever computes here: one program, equal to the plain step.

The arithmetic of a GPU is chosen by hand; what its kernels do, a GPU alone can show.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.arithmetic.choose import for_training
from regard.arithmetic.cuda import Cuda
from regard.data.batches import Batch
from regard.data.prefetch import training_batches
from regard.equations import Arithmetic
from regard.machine.compiled import compiled
from regard.optimizer import FlatAdam
from regard.recipe import Recipe
from regard.steps import BySize, Compiled, Steps, Whole, batch_loss, steps_for
from regard.training import update
from regard.transformer import Transformer
from run.copying import RECIPE, prepared
from run.killing import PROCESSES

STEP = RECIPE.but(layout="packed", row_length=16, dropout=0.0)
VOCABULARY = 256 + 3 + 10
CPU, GPU = torch.device("cpu"), torch.device("cuda")
MakeSteps = Callable[[Transformer, float], Steps]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


def of_a_gpu() -> Cuda:
    """The arithmetic of a GPU, which here computes the loss in several chunks."""
    arithmetic = Cuda(learning=True)
    arithmetic.chunk = 23
    return arithmetic


def losses_and_moments(
    batches: list[Batch],
    recipe: Recipe,
    dtype: torch.dtype,
    arithmetic: Arithmetic,
    steps: MakeSteps = Whole,
) -> tuple[Tensor, Tensor]:
    """The losses of an update with each batch, and Adam's moments, which show every gradient."""
    torch.manual_seed(1)
    model = Transformer(recipe.model, VOCABULARY).train()
    model.compute_by(arithmetic)
    optimizer = FlatAdam(model, recipe.training, dtype, arithmetic)
    some = steps(model, recipe.training.label_smoothing)
    each = [update(some, optimizer, [batch], 1e-3) for batch in batches]
    return torch.tensor([loss.per_token() for loss in each]), optimizer.state()["exp_avg"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gpus_way_gives_the_losses_and_gradients_of_the_cpus(
    data: Path, dtype: torch.dtype
) -> None:
    batches = training_batches(data, STEP).take(3)
    on_a_cpu = for_training(STEP.training, CPU, dtype, threads=1).whole
    plain = losses_and_moments(batches, STEP, dtype, on_a_cpu)
    other = losses_and_moments(batches, STEP, dtype, of_a_gpu())
    exact = dtype == torch.float32
    torch.testing.assert_close(other[0], plain[0], rtol=1e-5 if exact else 2e-2, atol=0)
    assert (other[1] - plain[1]).norm() < (1e-5 if exact else 2e-2) * plain[1].norm()


def test_it_is_one_program_for_all_batches(data: Path) -> None:
    """It runs in a process where no call's shapes are checked: those checks cannot be traced."""
    process = PROCESSES.Process(target=trace, args=(data,))
    process.start()
    process.join()
    assert process.exitcode == 0  # any other one has printed its reason
    process.close()


class Validating:
    """Learns by a compiled program, and computes by another arithmetic before each batch."""

    def __init__(self, model: Transformer, smoothing: float):
        self.program, self.other = Compiled(model, smoothing, pytest.fail), Cuda(learning=False)

    def learn(self, batch: Batch) -> Tensor:
        with torch.no_grad(), self.program.model.computing_by(self.other):
            batch_loss(self.program.model, batch, 0.0)
        return self.program.learn(batch)


def trace(data: Path) -> None:
    batches = training_batches(data, STEP).take(4)
    assert len({(batch.source_tokens, batch.target_tokens) for batch in batches}) > 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.steps.compiled", partial(compiled, backend="aot_eager"))
        got = losses_and_moments(batches, STEP, torch.float32, of_a_gpu(), Validating)
        plain = losses_and_moments(batches, STEP, torch.float32, of_a_gpu())
    for mine, theirs in zip(got, plain, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]


def test_nothing_in_a_step_waits_for_the_device(data: Path) -> None:
    """On a device without numbers, whatever asks for a number fails."""
    model = Transformer(RECIPE.model, VOCABULARY).to("meta").train()
    model.compute_by(of_a_gpu())
    optimizer = FlatAdam(model, STEP.training, torch.bfloat16, of_a_gpu())
    batches = [batch.to("meta") for batch in training_batches(data, STEP).take(2)]
    loss = update(Whole(model, 0.1), optimizer, batches, 1e-3)
    with pytest.raises(RuntimeError, match="meta"):
        loss.per_token()  # as this does, which is called when the journal is written


def test_the_step_is_compiled_on_a_gpu_where_batches_have_one_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def program(*given: Any) -> Any: ...

    def chosen(recipe: Recipe, device: torch.device) -> tuple[Transformer, Steps]:
        model = Transformer(recipe.model, VOCABULARY)
        optimizer = FlatAdam(model, recipe.training, torch.bfloat16)
        return model, steps_for(model, optimizer, recipe, device, torch.bfloat16, pytest.fail)

    monkeypatch.setattr("regard.steps.compiled", lambda function, warn: program)
    for recipe, device in (
        (STEP, CPU),
        (STEP.but(layout="grouped"), GPU),
        (STEP.but(arithmetic="plain"), GPU),
    ):
        assert type(chosen(recipe, device)[1]) is BySize
    model, steps = chosen(STEP.but(row_length=1040), GPU)
    assert isinstance(steps, Compiled)
    assert steps._program is program
    assert isinstance(model.by, Cuda)
    assert len(model.embedding.positions) >= 1040  # so that no call needs a larger table


def test_what_cannot_be_compiled_goes_on_as_it_is_and_says_so() -> None:
    warnings: list[str] = []

    def doubled_if_positive(x: Tensor) -> Tensor:
        return 2 * x if x.sum() > 0 else x  # a program cannot know which of them to compute

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
    cuda, fast = Cuda(learning=True), partial(Compiled, warn=pytest.fail)
    with torch.device("cuda"):
        plain = losses_and_moments(batches, STEP, torch.float32, cuda)
        other = losses_and_moments(batches, STEP, torch.float32, cuda, fast)
    torch.testing.assert_close(other[0], plain[0], rtol=1e-4, atol=0)
    assert (other[1] - plain[1]).norm() < 1e-4 * plain[1].norm()
