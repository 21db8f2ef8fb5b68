"""Recorded weights against a computation by hand; recording must leave the model unchanged."""

import math

import pytest
import torch
from torch import Tensor, nn

from regard.arithmetic.choose import can_pack, for_decoding
from regard.arithmetic.plain import PLAIN
from regard.data.rows import one_per_row
from regard.equations import Computing
from regard.recipe import ModelRecipe
from regard.transformer import Transformer
from regard.view.recording import KINDS, record_attention

SIZES = ModelRecipe(layers=2, d_model=12, d_ff=17, heads=3, d_k=5, d_v=4, dropout=0.0)
SOURCE = one_per_row([[5, 9, 7, 11, 13, 17, 2], [4, 6, 2]])
TARGET = one_per_row([[1, 8, 3], [1, 21, 22, 23, 24]])


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(3)
    model = Transformer(SIZES, vocabulary=29)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


def inputs_of(module: nn.Module, model: Transformer) -> tuple[Tensor, Tensor]:
    """The inputs of an attention module in an ordinary forward pass."""
    seen: list[tuple[Tensor, ...]] = []
    handle = module.register_forward_pre_hook(lambda _, given: seen.append(given))
    model(SOURCE, TARGET)
    handle.remove()
    (x, memory, _), *_ = seen
    return x, memory


@torch.no_grad()
def test_the_weights_are_those_of_the_equation(model: Transformer) -> None:
    with record_attention(model) as recording:
        model(SOURCE, TARGET)
    real = {"encoder": (7, 3), "decoder": (3, 5)}
    for kind in KINDS:
        stack = model.encoder if kind == "encoder" else model.decoder
        assert len(recording[kind]) == 2
        for layer, weights in zip(stack, recording[kind].values(), strict=True):
            module = layer.cross_attention if kind == "cross" else layer.self_attention
            x, memory = inputs_of(module, model)
            for row in (0, 1):
                queries = real["encoder" if kind == "encoder" else "decoder"][row]
                keys = real["decoder" if kind == "decoder" else "encoder"][row]
                for head in range(3):
                    mine = slice(5 * head, 5 * head + 5)
                    q = x[row] @ module.W_q.weight[mine].T + module.W_q.bias[mine]
                    k = memory[row] @ module.W_k.weight[mine].T + module.W_k.bias[mine]
                    for i in range(queries):
                        allowed = i + 1 if kind == "decoder" else keys
                        scores = [math.exp(q[i] @ k[j] / math.sqrt(5)) for j in range(allowed)]
                        expected = torch.zeros(memory.shape[1])
                        expected[:allowed] = torch.tensor(scores) / sum(scores)
                        torch.testing.assert_close(
                            weights[row, head, i], expected, rtol=0, atol=1e-6
                        )
                        assert weights[row, head, i].sum().item() == pytest.approx(1, abs=1e-6)


@torch.no_grad()
def test_the_output_is_the_same_and_nothing_is_left(model: Transformer) -> None:
    before = model(SOURCE, TARGET)
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    with record_attention(model):
        recorded = model(SOURCE, TARGET)
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == attributes
    torch.testing.assert_close(recorded, before, rtol=0, atol=1e-5)
    assert torch.equal(model(SOURCE, TARGET), before)


@torch.no_grad()
def test_a_recording_within_a_recording_leaves_nothing_either(model: Transformer) -> None:
    attributes = {name: dict(vars(module)) for name, module in model.named_modules()}
    with record_attention(model) as outer:
        with record_attention(model) as inner:
            model(SOURCE, TARGET)
        assert inner["cross"]
        outer["cross"].clear()
        model(SOURCE, TARGET)
        assert outer["cross"].keys() == inner["cross"].keys()
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == attributes


def test_an_error_leaves_nothing_either(model: Transformer) -> None:
    with pytest.raises(ZeroDivisionError), record_attention(model):
        raise ZeroDivisionError
    assert {module.by for module in model.modules() if isinstance(module, Computing)} == {PLAIN}


@torch.no_grad()
@pytest.mark.skipif(not can_pack(torch.float32), reason="this build has no oneDNN")
@pytest.mark.parametrize("exact", [None, False, True])
def test_a_model_whose_weights_are_laid_out_and_a_step_from_a_cache(
    model: Transformer, exact: bool | None
) -> None:
    with record_attention(model) as expected:
        model(SOURCE, TARGET)
    model.compute_by(for_decoding(model, torch.device("cpu"), "fp32", exact))
    with record_attention(model) as recording:
        state = model.start(SOURCE)
        for token in TARGET.ids[:, :3].T:
            _, state = model.step(token, state)
    for kind in ("encoder", "cross"):
        last = slice(2, 3) if kind == "cross" else slice(None)
        for found, whole in zip(recording[kind].values(), expected[kind].values(), strict=True):
            torch.testing.assert_close(found, whole[:, :, last], rtol=0, atol=1e-5)
    for found, whole in zip(
        recording["decoder"].values(), expected["decoder"].values(), strict=True
    ):
        torch.testing.assert_close(found, whole[:, :, 2:3, :3], rtol=0, atol=1e-5)


def test_gradients_pass_through_a_recorded_model(model: Transformer) -> None:
    with record_attention(model) as recording:
        model(SOURCE, TARGET).sum().backward()
    assert model.encoder[0].self_attention.W_q.weight.grad is not None
    assert not recording["encoder"][0].requires_grad
