"""The paper's tables: the recipes are the printed rows, and the figures are consistent."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import RecipeError
from regard.paper import (
    BASE,
    BASE_EN_FR,
    BASE_TIME,
    BIG,
    BIG_EN_FR,
    BIG_TIME,
    BIG_VOCABULARY,
    CORPORA,
    PAPER_RECIPES,
    TABLE_2,
    TABLE_3,
    TABLE_3_RESULTS,
    TABLE_3_VOCABULARY,
    TABLE_4,
    WSJ,
    WSJ_SEMI,
    parameters,
)
from regard.recipe import ModelRecipe, Recipe

GROUPS = {"A": 4, "B": 2, "C": 7, "D": 4}
ORDER = ["base", *(f"{group}{i + 1}" for group, rows in GROUPS.items() for i in range(rows)), "E"]
ORDER += ["big"]


# Recipes


def test_table_3_is_in_the_papers_order():
    assert list(TABLE_3) == list(TABLE_3_RESULTS) == ORDER


@pytest.mark.parametrize(
    ("row", "changed"),
    [
        ("base", {}),
        ("A1", {"heads": 1, "decoder_heads": 1, "d_k": 512, "d_v": 512}),
        ("A2", {"heads": 4, "decoder_heads": 4, "d_k": 128, "d_v": 128}),
        ("A3", {"heads": 16, "decoder_heads": 16, "d_k": 32, "d_v": 32}),
        ("A4", {"heads": 32, "decoder_heads": 32, "d_k": 16, "d_v": 16}),
        ("B1", {"d_k": 16}),
        ("B2", {"d_k": 32}),
        ("C1", {"layers": 2, "decoder_layers": 2}),
        ("C2", {"layers": 4, "decoder_layers": 4}),
        ("C3", {"layers": 8, "decoder_layers": 8}),
        ("C4", {"d_model": 256, "d_k": 32, "d_v": 32}),
        ("C5", {"d_model": 1024, "d_k": 128, "d_v": 128}),
        ("C6", {"d_ff": 1024, "decoder_d_ff": 1024}),
        ("C7", {"d_ff": 4096, "decoder_d_ff": 4096}),
        ("D1", {"dropout": 0.0}),
        ("D2", {"dropout": 0.2}),
        ("D3", {"label_smoothing": 0.0}),
        ("D4", {"label_smoothing": 0.2}),
        ("E", {"positions": "learned", "max_positions": 306}),
        (
            "big",
            {
                "d_model": 1024,
                "d_ff": 4096,
                "decoder_d_ff": 4096,
                "heads": 16,
                "decoder_heads": 16,
                "dropout": 0.3,
                "steps": 300_000,
                "keep": 20,
                "average": 20,
                "save_every": 600,
            },
        ),
    ],
)
def test_a_row_differs_from_base_only_where_the_table_prints_a_value(row, changed):
    assert differences(TABLE_3[row], BASE) == changed


def differences(recipe: Recipe, base: Recipe) -> dict[str, object]:
    """The fields in which a recipe differs from its base, with their values."""
    return {
        field: value
        for name, section in recipe
        for field, value in section
        if value != getattr(getattr(base, name), field)
    }


def test_base_is_the_printed_row():
    model = BASE.model
    assert (model.layers, model.d_model, model.d_ff) == (6, 512, 2048)
    assert (model.heads, model.d_k, model.d_v) == (8, 64, 64)
    assert (model.dropout, BASE.training.label_smoothing) == (0.1, 0.1)
    assert (model.attention_dropout, model.relu_dropout) == (0.0, 0.0)
    assert (BASE.search.beam, BASE.search.alpha, BASE.search.max_extra) == (4, 0.6, 50)
    assert (BASE.data.source_tokens, BASE.data.target_tokens) == (25_000, 25_000)


def test_adam_is_the_papers():
    training = BASE.training
    assert (training.beta1, training.beta2, training.epsilon) == (0.9, 0.98, 1e-9)
    assert training.warmup_steps == 4000


@pytest.mark.parametrize(("recipe", "time", "count"), [(BASE, BASE_TIME, 5), (BIG, BIG_TIME, 20)])
def test_checkpoints_are_as_many_steps_apart_as_took_the_authors_ten_minutes(recipe, time, count):
    by = recipe.training
    assert (by.average, by.save_minutes, by.averages_last) == (count, 0.0, False)
    assert by.save_every == round(600 / time.seconds_per_step)


@pytest.mark.parametrize("recipe", PAPER_RECIPES.values())
def test_a_crash_costs_ten_minutes_at_most(recipe):
    assert recipe.training.resume_minutes == 10.0


def test_base_has_the_defaults_but_for_checkpoints_and_initial_values():
    changed = {"initial", "save_every", "save_minutes", "resume_minutes"}
    assert differences(BASE, Recipe()).keys() == changed


def test_english_french_has_word_pieces_and_big_less_dropout():
    changed = {"kind": "wordpiece", "vocabulary": 32_000}
    assert differences(BASE_EN_FR, BASE) == changed
    assert differences(BIG_EN_FR, BIG) == changed | {"dropout": 0.1}


def test_parsing_keeps_the_base_models_other_sizes():
    for recipe in (WSJ, WSJ_SEMI):
        assert (recipe.model.layers, recipe.model.d_model, recipe.model.d_k) == (4, 1024, 128)
        assert (recipe.model.d_ff, recipe.model.heads) == (2048, 8)
        assert (recipe.search.beam, recipe.search.alpha, recipe.search.max_extra) == (21, 0.3, 300)
        assert recipe.model.attention_dropout > 0
        assert (recipe.training.rate, recipe.tokenizer.kind) == (0.5, "wordpiece")


def test_learned_positions_hold_the_longest_translation():
    recipe = TABLE_3["E"]
    assert recipe.model.max_positions == recipe.data.max_length + recipe.search.max_extra


@pytest.mark.parametrize(
    ("corpus", "recipe"),
    [
        ("WMT 2014 EN-DE", BASE),
        ("WMT 2014 EN-FR", BASE_EN_FR),
        ("WMT 2014 EN-FR", BIG_EN_FR),
        ("WSJ", WSJ),
        ("WSJ, semi-supervised", WSJ_SEMI),
    ],
)
def test_a_recipe_learns_its_corpus_vocabulary(corpus, recipe):
    assert recipe.tokenizer.vocabulary == CORPORA[corpus].vocabulary


@pytest.mark.parametrize("name", PAPER_RECIPES)
def test_a_named_recipe_survives_toml(name):
    recipe = Recipe.from_toml(f'base = "{name}"', PAPER_RECIPES)
    assert Recipe.from_toml(recipe.to_toml(), PAPER_RECIPES) == PAPER_RECIPES[name]


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(RecipeError, match=r"mine\.toml: unknown base recipe bigg: .* big\?"):
        Recipe.from_toml('base = "bigg"', PAPER_RECIPES, where="mine.toml")


# Parameter counts


@pytest.mark.parametrize("row", ORDER[:-1])
def test_parameters_round_to_the_printed_digits(row):
    count = parameters(TABLE_3[row].model, TABLE_3_VOCABULARY)
    assert round(count / 1e6) == TABLE_3_RESULTS[row].millions


def test_big_rounds_to_its_printed_digits_with_a_smaller_vocabulary():
    count = parameters(BIG.model, BIG_VOCABULARY)
    assert round(count / 1e6) == TABLE_3_RESULTS["big"].millions


def test_no_vocabulary_gives_both_base_and_big():
    def agrees(row: str, vocabulary: int) -> bool:
        count = parameters(TABLE_3[row].model, vocabulary)
        return round(count / 1e6) == TABLE_3_RESULTS[row].millions

    assert not any(agrees("base", v) and agrees("big", v) for v in range(30_000, 45_000))


@pytest.mark.parametrize(
    ("row", "lowest", "highest"),
    [
        ("base", 39_769, 41_721),
        ("B1", 39_948, 41_900),
        ("B2", 39_237, 41_190),
        ("C1", 40_600, 42_553),
        ("C2", 39_208, 41_160),
        ("C3", 40_330, 42_282),
        ("C4", 39_598, 43_504),
        ("C5", 40_527, 41_502),
        ("C6", 40_932, 42_884),
        ("C7", 39_397, 41_349),
        ("E", 39_463, 41_415),
        ("big", 35_296, 36_272),
    ],
)
def test_the_vocabularies_that_explain_a_row_are_the_documented_ones(row, lowest, highest):
    printed = TABLE_3_RESULTS[row].millions
    explains = [
        v
        for v in range(lowest - 1, highest + 2)
        if round(parameters(TABLE_3[row].model, v) / 1e6) == printed
    ]
    assert explains == list(range(lowest, highest + 1))
    assert f"{lowest:,} - {highest:,}" in str(parameters.__doc__)


def test_parameters_by_hand():
    model = ModelRecipe(layers=1, d_model=2, d_ff=3, heads=5, d_k=7, d_v=11)
    attention = (2 * 35 + 35) * 2 + (2 * 55 + 55) + (55 * 2 + 2)  # Q and K, V, O
    feed_forward = (2 * 3 + 3) + (3 * 2 + 2)
    norm = 2 + 2
    assert parameters(model, vocabulary=13) == 13 * 2 + 3 * attention + 2 * feed_forward + 5 * norm


@settings(max_examples=40)
@given(
    layers=st.integers(1, 3),
    decoder_layers=st.integers(1, 3),
    heads=st.sampled_from([2, 4, 6]),  # torch warns of a slower path for an odd number
    width=st.integers(1, 5),
    d_ff=st.integers(1, 7),
)
def test_parameters_agree_with_torch(layers, decoder_layers, heads, width, d_ff):
    d_model = heads * width
    with torch.device("meta"):
        peer = torch.nn.Transformer(d_model, heads, layers, decoder_layers, d_ff, batch_first=True)
    theirs = sum(weight.numel() for weight in peer.parameters())
    final_norms = 2 * 2 * d_model  # torch ends both stacks with a LayerNorm, the paper does not
    both = {"layers": layers, "decoder_layers": decoder_layers}
    model = ModelRecipe(**both, d_model=d_model, d_ff=d_ff, heads=heads)
    assert parameters(model, vocabulary=0) == theirs - final_norms


def test_learned_positions_are_one_table():
    sinusoidal, learned = BASE.model, BASE.but(positions="learned", max_positions=307).model
    assert parameters(learned, 7) - parameters(sinusoidal, 7) == 307 * 512


# Published figures


def test_table_3_steps_are_the_recipes():
    printed = {row: result.steps for row, result in TABLE_3_RESULTS.items()}
    assert printed == {row: recipe.training.steps for row, recipe in TABLE_3.items()}


def test_one_head_is_nine_tenths_of_a_point_below_the_best():
    heads = [TABLE_3_RESULTS[row].bleu for row in ("base", "A1", "A2", "A3", "A4")]
    assert max(heads) - TABLE_3_RESULTS["A1"].bleu == pytest.approx(0.9)  # §6.2 says so


def test_big_beats_every_earlier_result_by_two_points():
    earlier = [
        row.en_de for name, row in TABLE_2.items() if row.en_de and "Transformer" not in name
    ]
    assert TABLE_2["Transformer (big)"].en_de - max(earlier) > 2.0  # §6.1 says so


def test_big_costs_under_a_quarter_of_the_best_earlier_single_model():
    big, earlier = TABLE_2["Transformer (big)"], TABLE_2["MoE"]
    assert big.en_fr_flops < earlier.en_fr_flops / 4  # §6.1 says so


@pytest.mark.parametrize(
    ("time", "row"),
    [(BASE_TIME, "Transformer (base model)"), (BIG_TIME, "Transformer (big)")],
)
def test_training_cost_is_time_by_gpus_by_speed(time, row):
    assert float(f"{time.flops:.1e}") == TABLE_2[row].en_de_flops == TABLE_2[row].en_fr_flops


@pytest.mark.parametrize("time", [BASE_TIME, BIG_TIME])
def test_steps_fill_the_printed_hours(time):
    hours = time.steps * time.seconds_per_step / 3600
    assert 0.9 * time.hours < hours <= time.hours


def test_only_the_generative_grammar_and_multi_task_exceed_our_parser():
    f1 = {(row.name, row.training): row.f1 for row in TABLE_4}
    ours = f1["Transformer (4 layers)", "semi-supervised"]
    above = {name for name, score in f1.items() if score > ours}
    assert len(TABLE_4) == len(f1) == 12
    assert above == {("Luong et al. (2015)", "multi-task"), ("Dyer et al. (2016)", "generative")}


def test_tables_cannot_be_changed():
    with pytest.raises(TypeError):
        TABLE_3["base"] = BIG  # type: ignore[index]


def test_no_row_of_table_3_has_its_printed_count_at_the_vocabulary_of_the_text():
    """So "about 37,000" is not the number of entries that the printed models had."""
    vocabulary = BASE.tokenizer.vocabulary
    millions = {row: parameters(one.model, vocabulary) / 1e6 for row, one in TABLE_3.items()}
    assert vocabulary == 37_000
    assert all(round(n) != TABLE_3_RESULTS[row].millions for row, n in millions.items())
