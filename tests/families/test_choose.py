"""What every family offers: stepping equals forward, sizes are counted, layouts decode the same."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from families.modelling import OTHERS, VOCABULARY, gradients, model_of, rows, sentences, sizes
from regard.arithmetic.choose import can_pack, for_decoding, for_inference
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import OneDnnProducts, Products
from regard.cost import flop
from regard.data.rows import one_per_row
from regard.errors import RecipeError
from regard.families.choose import FAMILIES, new_model
from regard.loss import smoothed_loss
from regard.paper import parameters
from regard.recipe import ModelRecipe, Recipe
from regard.transformer import Transformer

EVERY = pytest.mark.parametrize("family", OTHERS)


def test_the_family_of_a_recipe_that_names_none_is_the_papers() -> None:
    assert type(new_model(ModelRecipe(layers=1, d_model=16), VOCABULARY)) is Transformer


@EVERY
def test_steps_compute_the_forward_pass(family: str) -> None:
    model = model_of(family)
    source, target = rows([7, 3, 5], 1), rows([13, 13, 13], 2)
    with torch.no_grad():
        whole, state = model(source, target), model.start(source)
        for i in range(13):
            logits, state = model.step(target.ids[:, i], state)
            torch.testing.assert_close(logits, whole[:, i], rtol=1e-4, atol=1e-4)


@EVERY
def test_selected_rows_step_as_if_they_had_always_been_alone(family: str) -> None:
    model, sources = model_of(family), sentences([7, 3, 5], 2)
    with torch.no_grad():
        state = model.start(one_per_row(sources))
        _, state = model.step(torch.tensor([4, 5, 6]), state)
        state = state.select(torch.tensor([[0, 0], [1, 1], [2, 2]]))  # two beams each
        _, state = model.step(torch.tensor([7, 8, 9, 10, 11, 12]), state)
        state = state.select(torch.tensor([[1, 0], [5, 5]]))  # the second sentence leaves
        logits, _ = model.step(torch.tensor([13, 14, 15, 16]), state)
    histories = [(0, [4, 8, 13]), (0, [4, 7, 14]), (2, [6, 12, 15]), (2, [6, 12, 16])]
    for row, (sentence, history) in enumerate(histories):
        alone = model(one_per_row([sources[sentence]]), one_per_row([history]))
        torch.testing.assert_close(logits[row], alone[0, -1], rtol=1e-4, atol=1e-4)


@EVERY
def test_a_sentence_does_not_see_padding_or_its_neighbours(family: str) -> None:
    model, sources, targets = model_of(family), sentences([9, 2, 5], 3), sentences([4, 11, 6], 4)
    with torch.no_grad():
        together = model(one_per_row(sources), one_per_row(targets))
        for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
            alone = model(one_per_row([source]), one_per_row([target]))[0]
            torch.testing.assert_close(together[row, : len(target)], alone, rtol=1e-4, atol=1e-4)


@EVERY
def test_the_future_is_not_seen_and_the_source_is(family: str) -> None:
    model, source = model_of(family), rows([5], 2)
    with torch.no_grad():
        one = model(source, one_per_row([[1, 7, 8, 9]]))
        other = model(source, one_per_row([[1, 7, 20, 21]]))
        elsewhere = model(rows([5], 3), one_per_row([[1, 7, 8, 9]]))
    torch.testing.assert_close(one[:, :2], other[:, :2])
    assert not torch.allclose(one[:, 2:], other[:, 2:])
    assert not torch.allclose(one[:, 0], elsewhere[:, 0])


@EVERY
def test_every_parameter_learns(family: str) -> None:
    model = model_of(family).train()
    model(rows([7, 3], 1), rows([6, 9], 2)).square().sum().backward()
    found = gradients(model)
    untrained = {n for n, p in model.named_parameters() if not p.requires_grad}
    assert found.keys() | untrained == dict(model.named_parameters()).keys()
    assert all(gradient.any() for gradient in found.values())


@EVERY
def test_training_by_operations_has_the_gradients_of_the_definitions(family: str) -> None:
    model, source, target = model_of(family), rows([5, 8], 1), rows([6, 3], 2)
    found = []
    for by in (PLAIN, Cpu(Products())):
        model.zero_grad()
        model.compute_by(by)
        model(source, target).square().sum().backward()
        found.append(gradients(model))
    for name in found[0]:
        torch.testing.assert_close(*(g[name] for g in found), rtol=1e-3, atol=1e-3)


@EVERY
def test_bf16_is_near_fp32(family: str) -> None:
    model, source, target = model_of(family), rows([5, 8], 1), rows([6, 6], 2)
    with torch.no_grad():
        exact = model(source, target)
        products = OneDnnProducts() if can_pack(torch.bfloat16) else Products()
        model.to(torch.bfloat16).compute_by(Cpu(products))
        error = (model(source, target) - exact).norm() / exact.norm()
    assert 1e-5 < error < 0.05


@EVERY
@pytest.mark.parametrize("kernel", [2, 3, 5])
def test_parameters_are_counted(family: str, kernel: int) -> None:
    recipe = sizes(family, kernel=kernel)
    assert new_model(recipe, VOCABULARY).parameter_count == parameters(recipe, VOCABULARY)


def test_learned_positions_are_counted() -> None:
    recipe = sizes("convolutional", positions="learned", max_positions=31)
    model = new_model(recipe, VOCABULARY)
    assert model.parameter_count == parameters(recipe, VOCABULARY)
    assert model.longest == 31


@EVERY
def test_operations_are_those_that_torch_counts(family: str) -> None:
    """By the definitions: of a fused LSTM torch counts nothing."""
    recipe, source, target, pairs = sizes(family, d_model=16), 10, 9, 2
    model = new_model(recipe, VOCABULARY)
    with FlopCounterMode(display=False) as counter:
        logits = model(rows([source] * pairs, 1), rows([target] * pairs, 2)).flatten(0, 1)
        smoothed_loss(logits, torch.full((len(logits),), 5), 0.1)[0].backward()
    counted = sum(flop(recipe, VOCABULARY, [source] * pairs, [target] * pairs))
    # The first product with an input without gradient has one backward product less.
    assert counter.get_total_flops() == pytest.approx(counted, rel=0.02)


@EVERY
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_decoding_lays_out_its_weights(family: str, precision: str) -> None:
    model, source, target = model_of(family, d_model=64), rows([5, 8], 1), rows([6, 6], 2)
    with torch.no_grad():
        before = model(source, target)
        if precision == "bf16":
            model.to(torch.bfloat16)
        model.compute_by(for_decoding(model, torch.device("cpu"), precision, exact=False))
        state = model.start(source)
        for i in range(6):
            logits, state = model.step(target.ids[:, i], state)
            error = (logits - before[:, i]).norm() / before[:, i].norm()
            assert error < (1e-4 if precision == "fp32" else 0.1)


@EVERY
def test_exact_decoding_is_one_by_one(family: str) -> None:
    arithmetic = for_decoding(model_of(family), torch.device("cpu"), "fp32", exact=True)
    assert not arithmetic.batches_agree(4, [1])


@EVERY
def test_two_models_of_the_same_weights_learn_side_by_side(family: str) -> None:
    model, source, target = model_of(family), rows([5, 3], 1), rows([4, 6], 2)
    other = model.sharing_weights()
    other.compute_by(for_inference(torch.device("cpu"), torch.float32))
    torch.testing.assert_close(other(source, target), model(source, target), rtol=1e-4, atol=1e-4)
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    assert all(mine is theirs for mine, theirs in pairs)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"layout": "packed"}, r'set data\.layout = "grouped"'),
        ({"score": "dot"}, "score = dot is for the transformer"),
        ({"residual": False}, "residual = False is for the transformer"),
        ({"causal": False}, "causal = False is for the transformer"),
        ({"layers": 1}, "give 2 or more"),
        ({"positions": "learned"}, "has no positions: leave it out"),
    ],
)
def test_what_a_family_has_not_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        Recipe().but(family="recurrent", **changes)


def test_a_recipe_that_names_a_family_has_grouped_batches() -> None:
    for family in FAMILIES:
        layout = Recipe().set(f"model.family={family}").data.layout
        assert layout == ("packed" if family == "transformer" else "grouped")
    assert Recipe().but(family="dilated", layers=1).set("model.kernel=5").data.layout == "grouped"
