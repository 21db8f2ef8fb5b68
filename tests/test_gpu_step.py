"""A step as a GPU takes it, on whatever computes here: one program, equal to the plain step.

The arithmetic of a GPU is chosen by hand; what its kernels do, a GPU alone can show.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from arithmetic import cases
from regard.arithmetic.choose import for_compiled_step, for_training
from regard.arithmetic.cuda import Cuda
from regard.arithmetic.flex import FlexCuda
from regard.data.batches import Batch
from regard.data.rows import Rows
from regard.data.training_data import training_batches
from regard.equations import Arithmetic
from regard.machine.compiled import compiled
from regard.optimizer import FlatAdam
from regard.recipe import Recipe
from regard.steps import BySize, Compiled, Steps, Whole, batch_loss, steps_for
from regard.training import update
from regard.transformer import Transformer
from run.copying import RECIPE, prepared
from run.killing import in_fork
from waits import Waits

STEP = RECIPE.but(layout="packed", row_length=16, dropout=0.0)
VOCABULARY = 256 + 3 + 10
CPU, GPU = torch.device("cpu"), torch.device("cuda")
MakeSteps = Callable[[Transformer, float], Steps]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


def of_a_gpu() -> Cuda:
    """The arithmetic of a GPU, which here computes the loss in several chunks."""
    arithmetic = cases.of_a_gpu()
    arithmetic.chunk = 23
    return arithmetic


def losses_and_moments(
    batches: list[Batch],
    recipe: Recipe,
    dtype: torch.dtype,
    arithmetic: Arithmetic,
    steps: MakeSteps = Whole,
) -> tuple[Tensor, Tensor]:
    """The losses of an update with each batch, and Adam's means of the gradients after each."""
    torch.manual_seed(1)
    model = Transformer(recipe.model, VOCABULARY).train()
    model.compute_by(arithmetic)
    device = batches[0].labels.device
    model.to(device)
    optimizer = FlatAdam(model, recipe.training, dtype, arithmetic)
    some = steps(model, recipe.training.label_smoothing)
    each, means = [], []
    for batch in batches:
        each.append(update(some, optimizer, [batch], 1e-3))
        means.append(optimizer.state()["exp_avg"].cpu().clone())
    return torch.tensor([loss.per_token() for loss in each]), torch.stack(means)


def test_the_gpus_way_gives_the_losses_and_gradients_of_the_cpus(data: Path) -> None:
    batches = training_batches(data, STEP).take(3)
    on_a_cpu = for_training(STEP.training, CPU, torch.float32, threads=1).whole
    plain = losses_and_moments(batches, STEP, torch.float32, on_a_cpu)
    other = losses_and_moments(batches, STEP, torch.float32, of_a_gpu())
    torch.testing.assert_close(other[0], plain[0], rtol=1e-5, atol=0)
    assert (other[1] - plain[1]).norm() < 1e-5 * plain[1].norm()


def test_in_bf16_the_gpus_way_is_as_near_to_fp32_as_the_cpus(data: Path) -> None:
    """The mean distance over six orders of the text: that of one order is 1 to 2.5 %."""
    distances = []
    for seed in range(1, 7):
        batches = training_batches(data, STEP.but(seed=seed)).take(3)
        on_a_cpu = [
            for_training(STEP.training, CPU, dtype, threads=1).whole
            for dtype in (torch.float32, torch.bfloat16)
        ]
        exact = losses_and_moments(batches, STEP, torch.float32, on_a_cpu[0])
        both = [
            losses_and_moments(batches, STEP, torch.bfloat16, way)
            for way in (on_a_cpu[1], of_a_gpu())
        ]
        torch.testing.assert_close(both[1][0], both[0][0], rtol=2e-2, atol=0)
        distances.append([float((one[1] - exact[1]).norm() / exact[1].norm()) for one in both])
    of_the_cpu, of_the_gpu = torch.tensor(distances).mean(0).tolist()
    assert of_the_gpu < min(0.02, 1.2 * of_the_cpu)


class Validating:
    """Learns by a compiled program; before each batch, it does what a validation does."""

    def __init__(self, model: Transformer, smoothing: float):
        before = model.by
        self.program = Compiled(model, smoothing, before, pytest.fail)
        self.other = Cuda(learning=False)

    def learn(self, batch: Batch) -> Tensor:
        model = self.program.model
        with torch.no_grad(), model.computing_by(self.other):
            batch_loss(model, batch, 0.0)
            model.embedding.table(600)  # a long search makes a longer table
        return self.program.learn(batch)


def compare(data: Path, device: str, backend: str, arithmetic: Arithmetic) -> None:
    """Assert that compiled steps, with validations between, are the plain steps."""
    batches = [batch.to(device) for batch in training_batches(data, STEP).take(4)]
    assert len({(batch.source_tokens, batch.target_tokens) for batch in batches}) > 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.steps.compiled", partial(compiled, backend=backend))
        got = losses_and_moments(batches, STEP, torch.float32, arithmetic, Validating)
        plain = losses_and_moments(batches, STEP, torch.float32, of_a_gpu())
    torch.testing.assert_close(got[0], plain[0], rtol=1e-4, atol=0)
    # On a GPU, only the first gradients are compared. Later ones differ more: Adam divides each
    # number by its size, so that one that is only rounding changes its weight as much as any other.
    means = zip(got[1], plain[1], strict=True) if device == "cpu" else [(got[1][0], plain[1][0])]
    for mine, right in means:
        assert (mine - right).norm() < 1e-4 * right.norm()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]


def on_a_cpu(data: Path) -> None:
    compare(data, "cpu", "aot_eager", of_a_gpu())


def on_a_gpu(data: Path) -> None:
    for arithmetic in (of_a_gpu(), for_compiled_step(GPU)):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compare(data, "cuda", "inductor", arithmetic)


def test_gpus_are_hidden_from_all_other_tests() -> None:
    """Each that trains would do so on the GPU, and compile a program for minutes."""
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert not torch.cuda.is_available()


def test_it_is_one_program_for_all_batches(data: Path) -> None:
    in_fork(on_a_cpu, data)


@pytest.mark.gpu
def test_on_a_gpu_the_compiled_step_is_the_plain_one(data: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    in_fork(on_a_gpu, data)


def test_nothing_in_a_step_waits_for_the_device(data: Path) -> None:
    """Neither in what a CPU shows, nor on a device without numbers, where reading one fails."""
    for device in ("cpu", "meta"):
        model = Transformer(RECIPE.model, VOCABULARY).to(device).train()
        model.compute_by(of_a_gpu())
        optimizer = FlatAdam(model, STEP.training, torch.bfloat16, of_a_gpu())
        batches = [batch.to(device) for batch in training_batches(data, STEP).take(2)]
        with Waits() as waits:
            loss = update(Whole(model, 0.1), optimizer, batches, 1e-3)
        assert not waits.found
    with pytest.raises(RuntimeError, match="meta"):
        loss.per_token()  # as this does, which is called when the journal is written


def test_a_wait_is_found_and_named() -> None:
    with Waits() as waits:
        segment = torch.arange(4)
        copied = torch.tensor([1, 2])
        segment[[0, 1]] = copied
        bool(segment.any())
        segment[segment > 1].to("cpu")
    assert {key.split(": ")[1]: n for key, n in waits.found.items()} == {
        "a tensor of Python's numbers is copied to the device": 2,
        "a number is read": 1,
        "a size is read": 1,
        "a copy from or to the device": 1,
    }


def test_the_step_is_compiled_on_a_gpu_where_batches_have_one_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def program(*given: Any) -> Any: ...

    def chosen(recipe: Recipe, device: torch.device) -> tuple[Transformer, Steps]:
        model = Transformer(recipe.model, VOCABULARY)
        optimizer = FlatAdam(model, recipe.training, torch.bfloat16)
        return model, steps_for(model, optimizer, recipe, device, torch.bfloat16, pytest.fail)

    monkeypatch.setattr("regard.steps.compiled", lambda function, graphs=False: program)
    monkeypatch.setattr("regard.arithmetic.choose.all_bytes", lambda device: 24 * 10**9)
    for recipe, device in (
        (STEP, CPU),
        (STEP.but(layout="grouped"), GPU),
        (STEP.but(arithmetic="plain"), GPU),
    ):
        assert type(chosen(recipe, device)[1]) is BySize
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    model, steps = chosen(STEP, GPU)
    assert type(steps) is BySize
    assert type(model.by) is Cuda  # FlexAttention is slow if it is not compiled
    monkeypatch.delenv("TORCH_COMPILE_DISABLE")
    model, steps = chosen(STEP.but(row_length=1040), GPU)
    assert isinstance(steps, Compiled)
    assert steps._program is program
    assert isinstance(model.by, FlexCuda)
    assert len(model.embedding.positions) >= 1040  # so that no call needs a larger table


@pytest.mark.parametrize("fails", ["forward", "backward"])
@pytest.mark.parametrize("ways", [1, 2])
def test_what_cannot_be_compiled_goes_on_in_another_way_and_says_so(
    data: Path, monkeypatch: pytest.MonkeyPatch, fails: str, ways: int
) -> None:
    """First without CUDA graphs, then not compiled; the gradient is that of the plain step."""

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, loss: Tensor) -> Tensor:
            if fails == "forward":
                raise RuntimeError("no compiler\nand a long story")
            return loss.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            raise RuntimeError("no compiler\nand a long story")

    def failing(*arguments: Any) -> tuple[Tensor, Tensor]:
        smoothed, plain = batch_loss(*arguments)
        return Failing.apply(smoothed), plain

    programs = iter([batch_loss if ways == 1 else failing, failing])  # made last to first
    monkeypatch.setattr("regard.steps.compiled", lambda *_, graphs=False: next(programs))
    warnings: list[str] = []
    used: list[Arithmetic] = []

    def steps(model: Transformer, smoothing: float) -> Steps:
        made = Compiled(model, smoothing, FlexCuda(learning=True), warnings.append)
        assert isinstance(model.by, FlexCuda)
        used.append(model.by)
        return made

    batches = training_batches(data, STEP).take(2)
    plain = losses_and_moments(batches, STEP, torch.float32, of_a_gpu())
    got = losses_and_moments(batches, STEP, torch.float32, of_a_gpu(), steps)
    assert torch.equal(got[0], plain[0])
    assert torch.equal(got[1], plain[1])
    assert warnings == [
        f"the step is {how}, and so is slower: no compiler"
        for how in ("compiled without CUDA graphs", "not compiled")[:ways]
    ]


def short(model: Transformer, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
    """A loss that is soon compiled."""
    loss = (model.embedding.tokens(batch.labels) ** 2).sum() * smoothing
    return loss, loss.detach()


def test_a_backward_pass_that_cannot_be_compiled_does_not_end_the_run(data: Path) -> None:
    """By PyTorch's own compiler, whose part for the backward pass raises."""
    in_fork(without_backward, data)


def without_backward(data: Path) -> None:
    from torch._dynamo.backends.common import aot_autograd

    def refused(*_: Any) -> Any:
        raise RuntimeError("ptxas died")

    backend = aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=refused)
    warnings: list[str] = []
    steps = partial(Compiled, arithmetic=of_a_gpu(), warn=warnings.append)
    batches = training_batches(data, STEP).take(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.steps.batch_loss", short)
        patch.setattr("regard.steps.compiled", partial(compiled, backend=backend))
        got = losses_and_moments(batches, STEP, torch.float32, of_a_gpu(), steps)
        plain = losses_and_moments(batches, STEP, torch.float32, of_a_gpu())
    for mine, theirs in zip(got, plain, strict=True):
        assert torch.equal(mine, theirs)
    assert len(warnings) == 2
    assert warnings[1].startswith("the step is not compiled, and so is slower: ")


def test_any_number_of_models_is_compiled_in_one_process() -> None:
    """PyTorch refuses to compile one function for a ninth model; here, for a third one."""
    in_fork(four_models)


def four_models() -> None:
    ids = torch.randint(3, VOCABULARY, (2, 8))
    rows = Rows(ids, torch.ones_like(ids), torch.arange(8).repeat(2, 1))
    batch = Batch(rows, rows, ids, 16, 16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.steps.batch_loss", short)
        patch.setattr("regard.steps.compiled", partial(compiled, backend="eager"))
        patch.setattr("regard.arithmetic.cuda.compiled", partial(compiled, backend="eager"))
        patch.setattr("torch._dynamo.config.recompile_limit", 2)
        for width in (8, 16, 24, 32):
            recipe = STEP.but(d_model=width, d_k=width // 2, d_v=width // 2, d_ff=width, heads=2)
            model, arithmetic = Transformer(recipe.model, VOCABULARY).train(), Cuda(learning=True)
            steps = Compiled(model, 0.1, arithmetic, pytest.fail)
            optimizer = FlatAdam(model, recipe.training, torch.bfloat16, arithmetic)
            update(steps, optimizer, [batch], 1e-3)
            assert arithmetic._one_pass is not None


def test_what_memory_is_too_small_for_is_not_tried_in_another_way(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr("regard.steps.compiled", lambda *_, graphs=False: full)
    model = Transformer(STEP.model, VOCABULARY)
    steps = Compiled(model, 0.1, of_a_gpu(), pytest.fail)
    with pytest.raises(torch.OutOfMemoryError):
        steps.learn(training_batches(data, STEP).take(1)[0])
