"""Figure 1 against torch.nn.Transformer, stepping against forward, and what sentences see."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from families.modelling import VOCABULARY, sentences
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.inference import Inference
from regard.arithmetic.layouts import Int8Linear, LaidOut, PackedLinear
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import Products
from regard.data.rows import Rows, one_per_row
from regard.equations import Arithmetic, Computing
from regard.paper import TABLE_3, parameters
from regard.recipe import ModelRecipe
from regard.transformer import Transformer
from twins import torch_transformer

SIZES = ModelRecipe(
    layers=2, decoder_layers=3, d_model=12, d_ff=17, heads=3, d_k=4, d_v=4, dropout=0.0
)


def transformer(recipe: ModelRecipe = SIZES) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(recipe, VOCABULARY)
    for parameter in model.parameters():  # biases and norms away from their neutral start
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch.nn, of odd head counts
def test_equals_torch_post_norm_with_padding_and_causal_masks() -> None:
    model = transformer()
    theirs = torch_transformer(model, SIZES)
    source, target = (one_per_row(sentences(n, s)) for n, s in (([7, 3, 5], 2), ([4, 6, 2], 3)))
    memory = model.encode(source)
    output = model.decode(target, memory, source)

    def embed(rows: Rows) -> torch.Tensor:
        return model.embedding(rows.ids, rows.positions, rows.ids.shape[1])

    expected_memory = theirs.encoder(embed(source), src_key_padding_mask=source.segments == 0)
    expected = theirs(
        embed(source),
        embed(target),
        tgt_mask=~torch.ones(6, 6, dtype=torch.bool).tril(),
        src_key_padding_mask=source.segments == 0,
        memory_key_padding_mask=source.segments == 0,
        tgt_key_padding_mask=target.segments == 0,
    )
    real_source, real_target = source.segments != 0, target.segments != 0
    torch.testing.assert_close(
        memory[real_source], expected_memory[real_source], atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(output[real_target], expected[real_target], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_stepping_equals_one_forward(positions: str) -> None:
    model = transformer(SIZES.model_copy(update={"positions": positions, "max_positions": 31}))
    source = one_per_row(sentences([7, 3], 2))
    target = torch.tensor(sentences([11, 11], 3))
    with torch.no_grad():
        expected = model(source, one_per_row(target.tolist()))
        state = model.start(source)
        for t in range(11):
            logits, state = model.step(target[:, t], state)
            torch.testing.assert_close(logits, expected[:, t], atol=1e-5, rtol=1e-5)


def test_selected_rows_step_as_if_they_had_always_been_alone() -> None:
    model = transformer()
    sources = sentences([7, 3, 5], 2)
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
        torch.testing.assert_close(logits[row], alone[0, -1], atol=1e-5, rtol=1e-5)


def test_forgotten_hypotheses_are_not_missed() -> None:
    model, beams, steps, leaves = transformer(), 5, 41, 30
    sources = sentences([7, 3, 5], 2)
    generator = torch.Generator().manual_seed(4)
    history: list[list[list[int]]] = [[[] for _ in range(beams)] for _ in sources]
    most = 0
    with torch.no_grad():
        state = model.start(one_per_row(sources))
        state = state.select(torch.arange(3)[:, None].expand(-1, beams))
        for step in range(steps):
            parents = torch.randint(beams, (len(history), beams), generator=generator)
            parents[0] = parents[0] // 3  # the first sentence has few ancestors, the others more
            rows = torch.arange(len(history))[:, None] * beams + parents
            if step == leaves:
                rows, parents, history = rows[::2], parents[::2], history[::2]
            state = state.select(rows)
            new = torch.randint(3, VOCABULARY, parents.shape, generator=generator)
            logits, state = model.step(new.flatten(), state)
            history = [
                [[*lines[p], t] for p, t in zip(chosen, tokens, strict=True)]
                for lines, chosen, tokens in zip(
                    history, parents.tolist(), new.tolist(), strict=True
                )
            ]
            most = max(most, state.ancestry.shape[2])
        for row, (sentence, line) in enumerate(
            (s, x) for s, some in enumerate(history) for x in some
        ):
            alone = model(one_per_row([sources[2 * sentence]]), one_per_row([line]))
            torch.testing.assert_close(logits[row], alone[0, -1], atol=1e-5, rtol=1e-5)
    assert most < beams * steps / 2  # most of what was computed has been dropped


def test_a_state_is_stepped_once() -> None:
    model = transformer()
    state = model.start(one_per_row(sentences([5], 2)))
    model.step(torch.tensor([4]), state)
    with pytest.raises(ValueError, match="made from this state already"):
        model.step(torch.tensor([4]), state)


@pytest.mark.parametrize("kept", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layer", [PackedLinear, Int8Linear])
def test_with_its_weights_laid_out_it_computes_the_same(layer: type, kept: torch.dtype) -> None:
    exact = layer is PackedLinear and kept == torch.float32
    source, target = (one_per_row(sentences(n, s)) for n, s in (([7, 3], 2), ([5, 5], 3)))
    plain, packed = transformer(), transformer()
    with torch.no_grad():
        packed.compute_by(Inference(LaidOut(packed, packed.embedding.tokens, layer), kept))
        expected = plain(source, target)
        state = packed.start(source)
        for t in range(5):
            logits, state = packed.step(target.ids[:, t], state)
            error = (logits - expected[:, t]).norm() / expected[:, t].norm()
            assert error < (1e-5 if exact else 0.1)
            assert exact or error > 1e-5


def carried(model: Transformer) -> set[Arithmetic]:
    """The arithmetics of all modules."""
    return {module.by for module in model.modules() if isinstance(module, Computing)}


def test_one_arithmetic_is_carried_by_all_modules_and_put_back_after_a_block() -> None:
    model, one, other = transformer(), Cpu(Products()), Cpu(Products())
    assert carried(model) == {PLAIN}
    model.compute_by(one)
    model.encoder[1].self_attention.by = PLAIN
    with pytest.raises(ZeroDivisionError), model.computing_by(other):
        assert carried(model) == {other}
        raise ZeroDivisionError
    assert carried(model) == {one, PLAIN}
    assert model.encoder[1].self_attention.by is PLAIN


def test_two_models_of_the_same_weights_carry_arithmetics_of_their_own() -> None:
    model = transformer()
    other, cpu = model.sharing_weights(), Cpu(Products())
    other.compute_by(cpu)
    assert (carried(model), carried(other)) == ({PLAIN}, {cpu})
    pairs = zip(model.named_parameters(), other.named_parameters(), strict=True)
    assert all(mine[0] == theirs[0] and mine[1] is theirs[1] for mine, theirs in pairs)
    source, target = (one_per_row(sentences([5, 3], seed)) for seed in (2, 3))
    torch.testing.assert_close(other(source, target), model(source, target), atol=1e-5, rtol=1e-5)
    other(source, target).sum().backward()
    assert model.decoder[1].feed_forward.W_2.weight.grad is not None


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 5)), min_size=1, max_size=4))
def test_packed_sentences_do_not_see_each_other(lengths: list[tuple[int, int]]) -> None:
    model = transformer()
    sources, targets = (sentences([n[i] for n in lengths], i) for i in (0, 1))

    def packed(side: list[list[int]]) -> Rows:
        ids = [token for sentence in side for token in sentence]
        segments = [i for i, s in enumerate(side, 1) for _ in s]
        positions = [p for s in side for p in range(len(s))]
        padding = [0, 0]
        return Rows(*(torch.tensor([x + padding]) for x in (ids, segments, positions)))

    with torch.no_grad():
        together = model(packed(sources), packed(targets))[0]
        alone = [
            model(one_per_row([s]), one_per_row([t]))[0]
            for s, t in zip(sources, targets, strict=True)
        ]
    torch.testing.assert_close(together[:-2], torch.cat(alone), atol=1e-5, rtol=1e-5)


def test_the_future_is_not_seen() -> None:
    model = transformer()
    source = one_per_row(sentences([5], 2))
    with torch.no_grad():
        one = model(source, one_per_row([[1, 7, 8, 9]]))
        other = model(source, one_per_row([[1, 7, 20, 21]]))
    torch.testing.assert_close(one[:, :2], other[:, :2])
    assert not torch.allclose(one[:, 2:], other[:, 2:])


@pytest.mark.parametrize("row", TABLE_3)
def test_parameters_of_table_3_are_those_of_the_closed_form(row: str) -> None:
    recipe = TABLE_3[row].model
    with torch.device("meta"):
        model = Transformer(recipe, 40_960)
    assert model.parameter_count == parameters(recipe, 40_960)


def test_joined_initial_values_are_those_of_one_matrix_with_all_outputs() -> None:
    """Glorot's limit is sqrt(6 / (inputs + outputs)); nothing else differs from "apart"."""
    recipe = ModelRecipe(layers=1, d_model=96, d_ff=97, heads=5, d_k=31, d_v=37)
    torch.manual_seed(3)
    apart = dict(Transformer(recipe, 301).named_parameters())
    torch.manual_seed(3)
    joined = Transformer(recipe.model_copy(update={"initial": "joined"}), 301).named_parameters()
    limits = {"self_attention": 2 * 5 * 31 + 5 * 37, "cross_attention": 5 * 31 + 5 * 37}
    for name, weight in joined:
        *_, attention, projection, kind = name.rsplit(".", 3)
        outputs = limits.get(attention, 0) if kind == "weight" else 0
        if outputs and projection in (["W_q"] * (attention == "self_attention") + ["W_k", "W_v"]):
            limit = (6 / (96 + outputs)) ** 0.5
            assert 0.99 * limit < weight.abs().max() <= limit * (1 + 1e-6), name
        else:
            assert torch.equal(weight, apart[name]), name
