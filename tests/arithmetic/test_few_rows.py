"""Few rows by loops over all layers: the logits are those of the modules, step by step."""

import random
import re
from copy import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import regard.decoding
from arithmetic.cases import INT8, NUMBA, ONEDNN, ONEDNN_BF16, skip_without
from regard.arithmetic import few_rows_limits
from regard.arithmetic.choose import for_decoding, for_few_rows
from regard.data.rows import one_per_row
from regard.ensemble import Ensemble
from regard.equations import FewRowsLimits
from regard.families.choose import new_model
from regard.granules import ONE_STEP
from regard.machine.threads import computing_with
from regard.recipe import Recipe, SearchRecipe
from regard.run.model_directory import write_model
from regard.search import search
from regard.transformer import Transformer
from regard.translation import Translator, load
from run.copying import RECIPE
from untrained import BRIEF, LINES, TOKENIZER

few_rows = pytest.importorskip("regard.arithmetic.few_rows")  # Numba may be missing
FewRows, LoopedSteps = few_rows.FewRows, few_rows.LoopedSteps
CPU = torch.device("cpu")
SIZES = [
    {"layers": 2, "d_model": 16, "d_ff": 32, "heads": 2},
    {"layers": 1, "d_model": 12, "d_ff": 17, "heads": 3, "activation": "swish"},
    {"layers": 3, "d_model": 10, "d_ff": 7, "heads": 1, "d_k": 3, "d_v": 5, "norm_epsilon": 1e-3},
    {"layers": 1, "d_model": 8, "d_ff": 8, "decoder_layers": 2, "heads": 4, "decoder_heads": 2},
    {"layers": 1, "d_model": 8, "d_ff": 8, "heads": 2, "embeddings": "apart", "output_bias": True},
    {"layers": 1, "d_model": 8, "d_ff": 8, "heads": 2, "source_end": False, "positions": "halves"},
    {"layers": 1, "d_model": 8, "d_ff": 8, "heads": 2, "positions": "learned"},
]
VOCABULARY = 37


def laid_out(
    sizes: dict[str, Any], precision: str = "fp32", *, exact: bool = False, bias: float = 0.0
) -> Any:
    """A model of random weights, laid out for decoding."""
    skip_without(NUMBA, ONEDNN, *{"bf16": [ONEDNN_BF16], "int8": [INT8]}.get(precision, []))
    torch.manual_seed(5)
    model: Any = new_model(Recipe().but(**sizes).model, VOCABULARY).eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:  # norms and biases, whose ones and zeros would hide their order
            parameter.data += 0.1 * torch.randn_like(parameter)
    if bias:
        model.encoder[0].feed_forward.W_1.bias.data[3] = bias
    model = model.to(torch.bfloat16 if precision == "bf16" else torch.float32)
    model.requires_grad_(False).compute_by(for_decoding(model, CPU, precision, exact))
    return model


@pytest.mark.parametrize(("precision", "near"), [("fp32", 1e-5), ("bf16", 0.1), ("int8", 0.2)])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "-".join(map(str, sizes.values())))
@torch.inference_mode()
def test_logits_are_those_of_the_modules(
    sizes: dict[str, Any], precision: str, near: float
) -> None:
    model = laid_out(sizes, precision)
    few = for_few_rows(model)
    assert few is not None
    source = one_per_row([[5, 6, 7, 8, 9, 2], [3, 2], [11, 12, 13, 2]])
    expected, found = model.start(source), few.start(source)
    generator, beams, rows = random.Random(1), 1, torch.arange(3)[:, None]
    for step in range(24):
        tokens = torch.tensor([generator.randrange(VOCABULARY) for _ in rows.flatten()])
        logits, expected = model.step(tokens, expected.select(rows))
        by_loops, found = few.step(tokens, found.select(rows))
        assert by_loops.dtype == logits.dtype
        torch.testing.assert_close(by_loops, logits, rtol=0, atol=near)
        stay = sorted(generator.sample(range(len(rows)), len(rows) - (step in (9, 17))))
        rows = torch.tensor(
            [[s * beams + generator.randrange(beams) for _ in "1234"] for s in stay]
        )
        beams = 4


@torch.inference_mode()
def test_an_unbounded_negative_sum_is_0_after_the_activation() -> None:
    model = laid_out(SIZES[0], bias=-torch.inf)
    source, rows = one_per_row([[5, 6, 2]]), torch.tensor([[0]])
    few = for_few_rows(model)
    assert few is not None
    expected, found = (
        some.step(torch.tensor([1]), some.start(source).select(rows))[0] for some in (model, few)
    )
    assert expected.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: "-".join(map(str, sizes.values())))
def test_steps_of_a_granule_are_those_that_are_made_one_by_one(
    sizes: dict[str, Any], precision: str
) -> None:
    """14 sentences by each kind of search, of short and long limits; </s> is a likely token."""
    draw = random.Random(f"{sizes}")
    model = laid_out(sizes, precision)
    few = for_few_rows(model)
    assert few is not None
    one_by_one = copy(few.by)
    one_by_one.granule = ONE_STEP
    ends, eos = set(), 2
    kinds = [(beam, finish) for beam in (1, 4, 7) for finish in ("candidates", "beam")]
    for beam, finish in draw.sample(2 * kinds, 2 * len(kinds)):
        source = one_per_row(
            [[*draw.choices(range(3, VOCABULARY), k=draw.randrange(1, 9)), 2] for _ in range(7)]
        )
        limits = torch.tensor([draw.randrange(1, 30) for _ in source.ids])
        recipe = SearchRecipe(beam=beam, alpha=draw.choice([0.0, 0.6]), finish=finish)
        with model.stepping_by(few):
            found, expected = (
                search(model, source, limits, recipe, by=by, n_best=beam, eos=eos)
                for by in (few.by, one_by_one)
            )
        for one, other in zip(found, expected, strict=True):
            assert [h.tokens for h in one] == [h.tokens for h in other]
            assert [h.finished for h in one] == [h.finished for h in other]
            assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)
            ends |= {h.finished for h in other}
            eos = draw.choice([2, *other[0].tokens])  # a likely token, so that sentences end early
    assert True in ends


def test_only_the_model_itself_makes_several_steps_by_one_loop() -> None:
    one, other = (laid_out(SIZES[0]) for _ in range(2))
    granule = for_few_rows(one).by.granule
    assert granule.suiting(one) is granule
    assert granule.steps > 1
    assert granule.suiting(Ensemble([one, one])) is granule.suiting(other) is ONE_STEP


def test_in_bf16_a_loop_makes_one_step() -> None:
    assert for_few_rows(laid_out(SIZES[0], "bf16")).by.granule is ONE_STEP


@torch.inference_mode()
def test_a_second_step_from_a_state_is_as_good_as_the_first() -> None:
    few = for_few_rows(laid_out(SIZES[0]))
    state = few.start(one_per_row([[5, 2]]))
    expected, after = few.step(torch.tensor([1]), state)
    few.step(torch.tensor([4]), state)
    assert few.step(torch.tensor([1]), state)[0].equal(expected)
    later, _ = few.step(torch.tensor([3]), after)
    assert few.step(torch.tensor([3]), few.step(torch.tensor([1]), state)[1])[0].equal(later)


@torch.inference_mode()
def test_a_step_may_need_more_than_twice_the_memory() -> None:
    """A wide beam: after one row, a step of more rows than twice the slots that are there."""
    model = laid_out(SIZES[0])
    few = for_few_rows(model)
    assert few is not None
    source, first = one_per_row([[5, 6, 2]]), torch.tensor([1])
    tokens = torch.arange(300) % VOCABULARY
    _, expected = model.step(first, model.start(source))
    _, found = few.step(first, few.start(source))
    assert len(tokens) > 2 * found.past.stored.shape[1]
    rows = torch.zeros(1, len(tokens), dtype=torch.long)
    logits, _ = model.step(tokens, expected.select(rows))
    by_loops, _ = few.step(tokens, found.select(rows))
    torch.testing.assert_close(by_loops, logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "unusual",
    [
        {"norm": "pre"},
        {"norm": "last"},
        {"activation": "gelu"},
        {"score": "dot"},
        {"score": "additive"},
        {"residual": False},
        {"neighbourhood": 4},
        {"family": "recurrent"},
        {"family": "convolutional"},
    ],
    ids=lambda fields: "-".join(map(str, *fields.items())),
)
def test_other_layers_are_left_to_the_modules(unusual: dict[str, Any]) -> None:
    assert for_few_rows(laid_out(SIZES[0] | unusual)) is None


def test_loops_in_8_bits_are_not_exact() -> None:
    assert for_few_rows(laid_out(SIZES[0], "int8", exact=True)) is None
    assert for_few_rows(laid_out(SIZES[0], "fp32", exact=True)) is not None


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model"
    torch.manual_seed(3)
    model = Transformer(RECIPE.model, TOKENIZER.size)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    write_model(path, BRIEF, TOKENIZER, weights, {})
    return path


@pytest.fixture
def in_8_bits(directory: Path) -> Translator:
    """A translator in int8 that decodes few rows by loops."""
    skip_without(NUMBA, INT8)
    translator = load(directory, precision="int8")
    translator.prepare_few_rows()
    return translator


@pytest.mark.parametrize("models", [1, 2], ids=["alone", "ensemble"])
def test_translations_and_scores_are_those_of_the_modules(
    directory: Path, models: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without(NUMBA, ONEDNN)
    few = load(*[directory] * models)
    monkeypatch.setattr(few_rows_limits, "FEW_ROWS_IN_FP32", None)
    translator = load(*[directory] * models)
    started, start = [], FewRows.start
    monkeypatch.setattr(FewRows, "start", lambda *given: started.append(given) or start(*given))
    expected = list(translator.stream(LINES[:7], n_best=3, window=3))
    assert not started
    found = list(few.stream(LINES[:7], n_best=3, window=3))
    assert started
    for one, other in zip(found, expected, strict=True):
        assert [t.text for t in one] == [t.text for t in other]
        assert [t.score for t in one] == pytest.approx([t.score for t in other], abs=1e-4)


def test_a_translation_in_8_bits_is_made_in_several_steps_at_a_time(
    in_8_bits: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, steps = [], FewRows.steps
    monkeypatch.setattr(FewRows, "steps", lambda *given: asked.append(given) or steps(*given))
    together = in_8_bits.translate(LINES[:4])
    assert asked
    monkeypatch.setattr(LoopedSteps, "suiting", lambda *_: ONE_STEP)
    asked.clear()
    assert in_8_bits.translate(LINES[:4]) == together
    assert not asked


def test_the_command_by_which_make_setup_compiles_the_loops() -> None:
    """In the Makefile, an error of the command is not an error: Numba may be missing."""
    makefile = Path(__file__).parents[2] / "Makefile"
    [command] = re.findall(r"-c '(.*compile_loops.*)' 2>", makefile.read_text("utf-8"))
    exec(command)


def test_the_modules_decode_until_loops_pay_and_where_rows_are_many(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without(NUMBA, INT8)
    started, start = [], FewRows.start
    monkeypatch.setattr(FewRows, "start", lambda *given: started.append(given) or start(*given))
    monkeypatch.setattr(regard.decoding, "FEW_FROM", 5)
    translator = load(directory, precision="int8")
    translator.translate(LINES[:3])
    assert not started
    translator.translate(LINES[:3])
    assert started
    started.clear()
    with monkeypatch.context() as context:
        context.setattr(regard.decoding, "LOOPS_FROM", 5)  # now the first text is a long one
        load(directory, precision="int8").translate(LINES[:3])
    assert started
    monkeypatch.setattr(regard.decoding, "for_few_rows", None)  # it would take time and memory
    translator = load(directory, precision="int8")
    limits = FewRowsLimits(tokens=512, products=1)
    monkeypatch.setattr(translator.model.by, "few_rows_limits", limits)
    for _ in range(2):
        translator.translate(LINES[:3])


def test_blank_lines_load_no_loops(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without(ONEDNN)
    monkeypatch.setattr(regard.decoding, "for_few_rows", lambda _: pytest.fail("loaded"))
    assert load(directory).translate(["", " "]) == ["", ""]


def test_many_cores_share_few_sentences_in_8_bits(
    in_8_bits: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, start = [], FewRows.start
    monkeypatch.setattr(
        FewRows, "start", lambda few, rows: started.append(len(rows.ids)) or start(few, rows)
    )
    limits = FewRowsLimits(tokens=16, products=10**9)
    monkeypatch.setattr(in_8_bits.model.by, "few_rows_limits", limits)
    with computing_with(2):
        together = in_8_bits.translate(LINES[:8])
    assert len(started) > 1
    assert sum(started) == 8
    started.clear()
    with computing_with(1):
        assert in_8_bits.translate(LINES[:8]) == together
    assert started == [8]
