"""§3.1 and §3.2 with one thing changed: the definitions, and stepping against forward."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.arithmetic.choose import for_decoding
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.inference import Inference
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import Products
from regard.attention import MultiHeadAttention
from regard.data.rows import Rows, one_per_row
from regard.errors import ModelError
from regard.layers import AddNorm
from regard.paper import parameters
from regard.recipe import ModelRecipe, Recipe
from regard.transformer import Transformer
from regard.variants import AdditiveAttention, NormOnly, add_norm_of, additive_scores, attention_of
from regard.view.recording import record_attention

VOCABULARY = 29
SIZES = ModelRecipe(layers=2, d_model=12, d_ff=17, heads=3, d_k=5, d_v=4, dropout=0.0)
CHANGES = [{"score": "dot"}, {"score": "additive"}, {"residual": False}, {"causal": False}]
IDS = ["dot", "additive", "no-residual", "no-mask"]


def transformer(**changes: object) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(SIZES.model_copy(update=changes), VOCABULARY)
    for parameter in model.parameters():  # biases and norms away from their neutral start
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


def rows(lengths: list[int], seed: int) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    return one_per_row(
        [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]
    )


def by_definition(module: MultiHeadAttention, x: Tensor, score: str) -> Tensor:
    """Attention of one sentence, head by head and pair by pair."""
    heads = []
    for head in range(module.heads):
        q, k, v = (
            F.linear(x[0], layer.weight, layer.bias).view(len(x[0]), module.heads, -1)[:, head]
            for layer in (module.W_q, module.W_k, module.W_v)
        )
        if score == "additive":
            w = module.w[head]
            pairs = [[(w * torch.tanh(one + other)).sum() for other in k] for one in q]
        else:
            pairs = [[(one * other).sum() for other in k] for one in q]
        heads.append(torch.stack([torch.stack(row) for row in pairs]).softmax(-1) @ v)
    return F.linear(torch.cat(heads, -1), module.W_o.weight, module.W_o.bias)


@pytest.mark.parametrize("score", ["dot", "additive"])
def test_scores_are_those_of_the_definition(score: str) -> None:
    module = transformer(score=score).encoder[0].self_attention
    x = torch.randn(1, 7, SIZES.d_model)
    found = module(x, x, PLAIN.mask(torch.ones(1, 1, 7, 7, dtype=torch.bool)))
    torch.testing.assert_close(found[0], by_definition(module, x, score))


def test_a_score_of_one_pair_by_hand() -> None:
    q, k = torch.tensor([[[[1.0, -2.0]]]]), torch.tensor([[[[0.5, 2.0]]]])
    found = additive_scores(q, k, torch.tensor([[3.0, 5.0]]))
    assert found.item() == pytest.approx(3 * torch.tanh(torch.tensor(1.5)).item())


def test_without_residual_only_the_norm_is_left() -> None:
    module = add_norm_of(SIZES.model_copy(update={"residual": False}))
    module.by = PLAIN
    x, y = torch.randn(2, 3, SIZES.d_model), torch.randn(2, 3, SIZES.d_model)
    torch.testing.assert_close(module(x, y), module.norm(y))


def test_a_recipe_that_names_no_variant_gets_none() -> None:
    plain = transformer()
    assert {type(m) for m in plain.modules() if isinstance(m, MultiHeadAttention)} == {
        MultiHeadAttention
    }
    assert {type(m) for m in plain.modules() if isinstance(m, AddNorm)} == {AddNorm}
    assert isinstance(
        attention_of(SIZES.model_copy(update={"score": "additive"})), AdditiveAttention
    )
    assert isinstance(add_norm_of(SIZES.model_copy(update={"residual": False})), NormOnly)
    recipe = Recipe().model
    assert (recipe.score, recipe.residual, recipe.causal) == ("scaled", True, True)


def test_without_the_mask_a_position_sees_those_after_it() -> None:
    source, target = rows([5], 1), rows([6], 2)
    changed = target._replace(ids=target.ids.index_fill(1, torch.tensor([5]), 7))
    for causal in (True, False):
        model = transformer(causal=causal)
        same = torch.equal(model(source, target)[0, 0], model(source, changed)[0, 0])
        assert same is causal


def test_without_the_mask_packed_sentences_do_not_see_each_other() -> None:
    model = transformer(causal=False)
    source, target = rows([4], 1), rows([3], 2)
    two = Rows(*(torch.cat([x, x], 1) for x in target))
    packed = two._replace(segments=two.segments.index_fill(1, torch.arange(3, 6), 2))
    both = Rows(*(torch.cat([x, x], 1) for x in source))
    both = both._replace(segments=both.segments.index_fill(1, torch.arange(4, 8), 2))
    found, alone = model(both, packed), model(source, target)
    torch.testing.assert_close(found[:, 3:], alone)


@pytest.mark.parametrize("change", CHANGES[:3], ids=IDS[:3])
@pytest.mark.parametrize("by", [PLAIN, Inference(Products())], ids=["plain", "inference"])
def test_steps_compute_the_forward_pass(change: dict[str, object], by: object) -> None:
    model = transformer(**change)
    model.compute_by(by)  # type: ignore[arg-type]
    source, target = rows([5, 8], 1), rows([19, 19], 2)
    with torch.no_grad():
        whole, state = model(source, target), model.start(source)
        for i in range(target.ids.shape[1]):
            logits, state = model.step(target.ids[:, i], state)
            torch.testing.assert_close(logits, whole[:, i], rtol=1e-4, atol=1e-4)
            state = state.select(torch.arange(2)[:, None])  # every 16th is a compaction


def test_without_the_mask_steps_are_those_of_a_model_with_it() -> None:
    source, target = rows([5], 1), rows([4], 2)
    with_mask, without = transformer(), transformer(causal=False)
    state, other = with_mask.start(source), without.start(source)
    for i in range(4):
        logits, state = with_mask.step(target.ids[:, i], state)
        found, other = without.step(target.ids[:, i], other)
        assert torch.equal(logits, found)


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
def test_training_by_operations_has_the_gradients_of_the_definitions(
    change: dict[str, object],
) -> None:
    model, source, target = transformer(**change), rows([5, 8], 1), rows([6, 3], 2)
    gradients = []
    for by in (PLAIN, Cpu(Products())):
        model.zero_grad()
        model.compute_by(by)
        model(source, target).square().sum().backward()
        gradients.append(
            {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        )
    assert gradients[0].keys() == gradients[1].keys()
    for name in gradients[0]:
        torch.testing.assert_close(*(g[name] for g in gradients), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_decoding_lays_out_variants(change: dict[str, object], precision: str) -> None:
    model, source, target = transformer(**change), rows([5, 8], 1), rows([6, 3], 2)
    with torch.no_grad():
        before = model(source, target)
        cpu = torch.device("cpu")
        model.compute_by(
            for_decoding(model, cpu, precision, None if precision == "fp32" else False)
        )
        error = (model(source, target) - before).abs().max() / before.abs().max()
    assert error < (1e-4 if precision == "fp32" else 0.2)


def test_exact_decoding_of_additive_attention_is_one_by_one() -> None:
    model = transformer(score="additive")
    arithmetic = for_decoding(model, torch.device("cpu"), "fp32", exact=True)
    assert not arithmetic.batches_agree(4, [1])


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
def test_parameters_are_counted(change: dict[str, object]) -> None:
    model = transformer(**change)
    recipe = SIZES.model_copy(update=change)
    assert model.parameter_count == parameters(recipe, VOCABULARY)


def test_recording_refuses_additive_attention() -> None:
    model = transformer(score="additive")
    with pytest.raises(ModelError, match=r"model\.score = additive"), record_attention(model):
        pass


def test_recording_sees_unscaled_weights() -> None:
    model, source, target = transformer(score="dot"), rows([5], 1), rows([4], 2)
    with record_attention(model) as recording:
        model(source, target)
    x = model.embedding(source.ids, source.positions, 5)
    query, keys, _ = model.encoder[0].self_attention.project(x)
    expected = (query @ keys.transpose(2, 3)).softmax(-1)
    torch.testing.assert_close(recording.layers("encoder")[0], expected)
