"""§3.1 and §3.2 with one thing changed: the definitions, and stepping against forward."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from families.modelling import VOCABULARY, rows
from regard.arithmetic.choose import for_decoding
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.inference import Inference
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import Products
from regard.attention import MultiHeadAttention
from regard.data.rows import Rows, one_per_row
from regard.equations import Arithmetic
from regard.layers import AddNorm, FeedForward, sinusoids
from regard.paper import parameters
from regard.recipe import ModelRecipe, Recipe
from regard.text.tokenizer import BOS, EOS
from regard.transformer import Transformer
from regard.variants import AdditiveAttention, NormOnly, add_norm_of, additive_scores, attention_of
from regard.view.recording import record_attention
from twins import MARIAN, marian, torch_transformer

SIZES = ModelRecipe(layers=2, d_model=12, d_ff=17, heads=3, d_k=5, d_v=4, dropout=0.0)
SOURCE_VOCABULARY = 37
"""Of the models whose source has an embedding of its own."""
CHANGES = [
    {"score": "dot"},
    {"score": "additive"},
    {"residual": False},
    {"norm": "pre"},
    {"norm": "pre", "score": "dot", "activation": "gelu"},
    {"norm": "pre", "score": "additive", "residual": False, "embeddings": "apart"},
    {"activation": "swish"},
    {"decoder_heads": 2, "decoder_d_ff": 9},
    {"embeddings": "target", "embedding_scale": False},
    {"embeddings": "inputs", "positions": "learned", "max_positions": 40},
    {"embeddings": "apart", "output_bias": True, "positions": "learned", "max_positions": 40},
    {"output_bias": True, "norm_epsilon": 0.01, "positions": "halves"},
    {"norm": "last", "activation": "swish"},
    {"source_end": False, "norm": "pre"},
    {"causal": False},
]
PARTS = {"embedding", "encoder", "decoder"}
"""Where the weights of the paper's model are."""
STEPPED = CHANGES[:-1]
"""Those of which a step is a position of the forward pass."""
IDS = [" ".join(f"{key}={value}" for key, value in change.items()) for change in CHANGES]


def transformer(sizes: ModelRecipe = SIZES, **changes: object) -> Transformer:
    torch.manual_seed(1)
    recipe = sizes.model_copy(update=changes)
    model = Transformer(recipe, VOCABULARY, source_vocabulary(recipe))
    for parameter in model.parameters():  # biases and norms away from their neutral start
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


def source_vocabulary(recipe: ModelRecipe) -> int:
    return SOURCE_VOCABULARY if recipe.embeddings in ("target", "apart") else VOCABULARY


def laid_out(model: Transformer, precision: str = "fp32") -> Arithmetic:
    return for_decoding(model, torch.device("cpu"), precision, False)


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
    assert {type(m) for m in plain.modules() if isinstance(m, FeedForward)} == {FeedForward}
    assert plain.state_dict().keys() == {
        name for name, _ in plain.named_parameters() if name.split(".")[0] in PARTS
    }
    recipe = Recipe().model
    assert (recipe.score, recipe.residual, recipe.causal) == ("scaled", True, True)


def test_halves_are_the_sinusoids_in_another_order() -> None:
    halves, table = transformer(positions="halves").embedding.table(700), sinusoids(700, 12)
    assert torch.equal(halves[:700], torch.cat([table[:, ::2], table[:, 1::2]], dim=1))


def test_without_its_end_a_source_is_read_as_if_it_had_none() -> None:
    """The logits of a source with </s> equal those of the model that attends to all, without it."""
    without, plain = transformer(source_end=False), transformer()
    without.load_state_dict(plain.state_dict())
    target = one_per_row([[BOS, 5, 6], [BOS, 7]])
    ended, bare = one_per_row([[4, 9, 8, EOS], [11, EOS]]), one_per_row([[4, 9, 8], [11]])
    real = target.segments != 0
    assert torch.allclose(without(ended, target)[real], plain(bare, target)[real], atol=1e-5)
    assert not torch.allclose(plain(ended, target)[real], plain(bare, target)[real], atol=1e-4)


def test_one_matrix_has_one_vocabulary() -> None:
    for embeddings in ("shared", "inputs"):
        with pytest.raises(ValueError, match="source and target are one"):
            Transformer(SIZES.model_copy(update={"embeddings": embeddings}), 29, 37)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch.nn, where norms come first
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post", "last"])
def test_equals_torch_with_norms_first_or_last(norm: str, activation: str) -> None:
    sizes = ModelRecipe(layers=2, decoder_layers=3, d_model=12, d_ff=17, heads=3, dropout=0.0)
    recipe = sizes.model_copy(
        update={"norm": norm, "activation": activation, "norm_epsilon": 1e-3, "positions": "halves"}
    )
    model = transformer(recipe)
    theirs = torch_transformer(model, recipe)
    source, target = rows([7, 3, 5], 2), rows([4, 6, 2], 3)
    expected = theirs(
        *(model.embedding(x.ids, x.positions, 7) for x in (source, target)),
        tgt_mask=~torch.ones(6, 6, dtype=torch.bool).tril(),
        src_key_padding_mask=source.segments == 0,
        memory_key_padding_mask=source.segments == 0,
        tgt_key_padding_mask=target.segments == 0,
    )
    found, real = model.decode(target, model.encode(source), source), target.segments != 0
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)


MARIANS = [
    {},
    {"activation": "swish", "decoder_layers": 1},
    {"activation": "gelu", "embeddings": "target"},
    {"embeddings": "apart", "embedding_scale": False, "activation": "swish"},
    {"layers": 1, "decoder_heads": 6, "decoder_d_ff": 9, "embeddings": "target"},
]


@pytest.mark.parametrize("change", MARIANS, ids=str)
def test_equals_a_marian_model_of_transformers(change: dict[str, object]) -> None:
    pytest.importorskip("transformers")
    recipe = ModelRecipe(**{"layers": 2, "d_model": 12, "d_ff": 17, "heads": 3} | MARIAN | change)
    model = transformer(recipe)
    theirs, source, target = marian(model, recipe), rows([7, 3], 2), rows([6, 6], 3)
    with torch.no_grad():
        expected = theirs(
            input_ids=source.ids,
            attention_mask=(source.segments != 0).long(),
            decoder_input_ids=target.ids,
        ).logits
        torch.testing.assert_close(model(source, target), expected, atol=1e-5, rtol=1e-5)
        for made in (lambda: PLAIN, lambda: Inference(Products()), lambda: laid_out(model)):
            model.compute_by(made())
            state = model.start(source)
            for i in range(target.ids.shape[1]):
                logits, state = model.step(target.ids[:, i], state)
                torch.testing.assert_close(logits, expected[:, i], atol=1e-5, rtol=1e-5)


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


@pytest.mark.parametrize("change", STEPPED, ids=IDS[:-1])
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
        model.compute_by(laid_out(model, precision))
        error = (model(source, target) - before).abs().max() / before.abs().max()
    assert error < (1e-4 if precision == "fp32" else 0.2)


@pytest.mark.parametrize("change", [{"score": "additive"}, {"activation": "swish"}], ids=str)
def test_exact_decoding_is_one_by_one_where_batches_could_matter(change: dict[str, object]) -> None:
    model = transformer(**change)
    arithmetic = for_decoding(model, torch.device("cpu"), "fp32", exact=True)
    assert not arithmetic.batches_agree(4, [1])


@pytest.mark.parametrize("change", CHANGES, ids=IDS)
def test_parameters_are_counted(change: dict[str, object]) -> None:
    model = transformer(**change)
    recipe = SIZES.model_copy(update=change)
    assert model.parameter_count == parameters(recipe, VOCABULARY, source_vocabulary(recipe))


def test_recording_sees_additive_weights() -> None:
    model, source, target = transformer(score="additive"), rows([5], 1), rows([4], 2)
    expected = model(source, target)
    with record_attention(model) as recording:
        torch.testing.assert_close(model(source, target), expected)
    x = model.embedding(source.ids, source.positions, 5)
    module = model.encoder[0].self_attention
    query, keys, _ = module.project(x)
    scores = additive_scores(query, keys, module.w)
    torch.testing.assert_close(recording["encoder"][0], scores.softmax(-1))


def test_recording_sees_unscaled_weights() -> None:
    model, source, target = transformer(score="dot"), rows([5], 1), rows([4], 2)
    with record_attention(model) as recording:
        model(source, target)
    x = model.embedding(source.ids, source.positions, 5)
    query, keys, _ = model.encoder[0].self_attention.project(x)
    expected = (query @ keys.transpose(2, 3)).softmax(-1)
    torch.testing.assert_close(recording["encoder"][0], expected)
