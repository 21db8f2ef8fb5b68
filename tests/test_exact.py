"""A sentence has one translation, whatever else is translated with it, and in whatever order."""

import itertools
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard.decoding
from regard.arithmetic import few_rows_limits
from regard.arithmetic.choose import can_pack
from regard.arithmetic.inference import ExactInference
from regard.corpus import example
from regard.data.rows import Rows
from regard.decoder_state import DecoderState
from regard.decoding import FEW_TOKENS
from regard.equations import Arithmetic
from regard.recipe import Recipe
from regard.run.model_directory import write_model
from regard.text.tokenizer import Tokenizer
from regard.transformer import Transformer
from regard.translation import Translation, Translator, load

pytestmark = pytest.mark.skipif(not can_pack(torch.float32), reason="this build has no oneDNN")
RECIPE = Recipe().but(layers=1, d_model=64, d_ff=96, heads=2, vocabulary=300, max_extra=7)
BUILT_IN = [example(5, i).source for i in range(12)]
SHORT = sorted(BUILT_IN, key=len)[:4]
SENTENCES = [*SHORT, "", "a", " ".join(SHORT[:2]), SHORT[0]]
COMPUTED = ["fp32", "fp32 by modules", "bf16", "int8"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model: its hypotheses are long, and close to each other."""
    torch.manual_seed(3)
    tokenizer = Tokenizer.learn(BUILT_IN, "bpe", 300)
    weights = Transformer(RECIPE.model, tokenizer.size).named_parameters()
    directory = tmp_path_factory.mktemp("exact") / "model"
    write_model(directory, RECIPE, tokenizer, {k: w.detach() for k, w in weights}, {"step": 1})
    return directory


@pytest.fixture(scope="module", params=COMPUTED)
def translator(model: Path, request: pytest.FixtureRequest) -> Translator:
    if request.param == "bf16" and not can_pack(torch.bfloat16):
        pytest.skip("no bf16 products here")
    precision, *by_modules = request.param.split(" ", 1)
    some = load(model, precision=precision, exact=True)
    if by_modules:
        some.model.by.few_rows_limits = None
    elif precision == "fp32":
        pytest.importorskip("numba")
        assert some.model.by.few_rows_limits, "loops decode"
    if some.one_by_one:
        pytest.skip("the kernels of this processor do not agree")
    return some


@pytest.fixture(scope="module")
def alone(translator: Translator) -> list[list[tuple[str, str]]]:
    """The whole beam of each sentence, translated sentence by sentence."""
    return [exactly(next(translator.stream([line], n_best=4))) for line in SENTENCES]


def exactly(best: list[Translation]) -> list[tuple[str, str]]:
    return [(translation.text, translation.score.hex()) for translation in best]


@settings(deadline=None, max_examples=4)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 30),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([0, 10**9]),
)
def test_neither_order_nor_company_nor_threads_nor_copies_change_a_bit(
    translator: Translator,
    alone: list[list[tuple[str, str]]],
    draw: random.Random,
    window: int,
    threads: int,
    copies_from: int,
) -> None:
    order = draw.choices(range(len(SENTENCES)), k=draw.randint(1, 11))  # some are there twice
    before = torch.get_num_threads(), regard.decoding.COPIES_FROM
    try:
        torch.set_num_threads(threads)
        regard.decoding.COPIES_FROM = copies_from
        found = translator.stream([SENTENCES[i] for i in order], n_best=4, window=window)
        for i, best in zip(order, found, strict=True):
            assert exactly(best) == alone[i]
    finally:
        torch.set_num_threads(before[0])
        regard.decoding.COPIES_FROM = before[1]


def test_what_is_compared_would_show_a_difference(alone: list[list[tuple[str, str]]]) -> None:
    texts, scores = zip(*itertools.chain(*alone), strict=True)
    assert len(set(scores)) > 2 * len(SENTENCES)
    assert max(map(len, texts)) > 50  # long enough for a state that has dropped what died


class Heard:
    """Stands for `start` of a model, and notes the sentences and the threads of each call."""

    def __init__(self, model: Transformer):
        self.start_of, self.rows, self.threads = model.start, [], []

    def __call__(self, source: Rows) -> DecoderState:
        self.rows.append(len(source.ids))
        self.threads.append(torch.get_num_threads())
        return self.start_of(source)


def test_where_kernels_do_not_agree_sentences_go_one_by_one(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExactInference, "batches_agree", lambda *_: False)
    monkeypatch.setattr(few_rows_limits, "FEW_ROWS_IN_FP32", None)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        some = load(model, exact=True)
        heard = Heard(some.model)
        monkeypatch.setattr(some.model, "start", heard)
        lines = SENTENCES[2:6]
        together = list(some.stream(lines, n_best=2))
        assert heard.rows == [1] * (len(lines) - 1)  # one is blank
        assert [next(some.stream([line], n_best=2)) for line in lines] == together
        assert set(heard.threads) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_loops_are_exact_without_a_trial(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(ExactInference, "batches_agree", lambda *_: pytest.fail("tried"))
    assert not load(model, exact=True).one_by_one


@pytest.mark.parametrize(
    ("change", "members"), [({}, 1), ({"activation": "swish"}, 2), ({"source_end": False}, 1)]
)
@pytest.mark.parametrize("beam", [1, 4])
def test_loops_decode_a_sentence_to_the_same_bits_in_any_batch(
    change: dict[str, object], members: int, beam: int, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    torch.manual_seed(7)
    recipe = RECIPE.but(**change, beam=beam)
    tokenizer = Tokenizer.learn(BUILT_IN, "bpe", 300)
    for name in "ab"[:members]:
        weights = Transformer(recipe.model, tokenizer.size).named_parameters()
        write_model(tmp_path / name, recipe, tokenizer, {k: w.detach() for k, w in weights}, {})
    some = load(*(tmp_path / name for name in "ab"[:members]))
    lines = SENTENCES
    if not change and members == 1:
        some.accept_longer()
        lines = [*SENTENCES, " ".join([*BUILT_IN, *BUILT_IN[:2]])]
        assert some.measure(lines[-1:], split=False, where="", numbers=[1]) > FEW_TOKENS
    together = [exactly(best) for best in some.stream(lines, n_best=beam)]
    assert some._few_rows, "loops decode"
    assert [exactly(next(some.stream([line], n_best=beam))) for line in lines] == together


def test_by_default_nothing_is_tried_and_batches_stay(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arithmetic in (Arithmetic, ExactInference):
        monkeypatch.setattr(arithmetic, "batches_agree", lambda *_: pytest.fail("tried"))
    found = []
    for exact, loops in ((None, True), (None, False), (False, False)):
        some = load(model, exact=exact)
        if not loops:
            some.model.by.few_rows_limits = None
        heard = Heard(some.model)
        monkeypatch.setattr(some.model, "start", heard)
        found.append(some.translate(SENTENCES * 2))
        assert max(heard.rows) > 5
        assert not some.one_by_one
    assert found[1] == found[2]


def test_a_model_whose_weights_are_not_laid_out_goes_one_by_one(model: Path) -> None:
    loaded = load(model)
    plain = Transformer(RECIPE.model, loaded.tokenizer.size).eval()
    some = Translator(plain, loaded.tokenizer, loaded.recipe, loaded.longest, exact=True)
    assert some.one_by_one
