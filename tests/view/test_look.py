"""Looks at a sentence, against the forward pass of training."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.data.rows import one_per_row
from regard.errors import DataError, ModelError
from regard.run.model_directory import Model
from regard.text.tokenizer import BOS, EOS
from regard.translation import Translator
from regard.view.account import Candidate
from regard.view.look import Look, distance, entropy, look_at
from regard.view.recording import KINDS
from view.conftest import SENTENCE, TARGET


def log_p_of(model: Model, ids: list[int]) -> float:
    """log p of these ids by the forward pass of training."""
    source = one_per_row([[*model.tokenizer.encode([SENTENCE])[0], EOS]])
    with torch.no_grad():
        logits = model.network(source, one_per_row([[BOS, *ids[:-1]]]))[0]
    log_p = logits.double().log_softmax(-1)
    return sum(log_p[i, token].item() for i, token in enumerate(ids))


def test_the_translation_is_that_of_translate(model: Model) -> None:
    translator = Translator(
        model.network, model.tokenizer, model.recipe.search, model.recipe.data.max_length
    )
    assert look_at(model, SENTENCE).translation == translator.translate([SENTENCE])[0]


@pytest.mark.parametrize("by_words", [False, True])
def test_a_given_translation_as_training_sees_it(model: Model, by_words: bool) -> None:
    found = look_at(model, SENTENCE, TARGET, by_words=by_words)
    ids = [*model.tokenizer.encode([TARGET])[0], EOS]
    assert found.translation == TARGET
    assert sum(found.log_p) == pytest.approx(log_p_of(model, ids), abs=1e-4)
    assert len(found.read) == len(found.written) == len(found.log_p)
    assert found.read[1:] == found.written[:-1]
    if by_words:
        assert " ".join(found.source[:-1]) == SENTENCE.replace(".", " .").replace(",", " ,")
    for kind in KINDS:
        weights = found.weights[kind]
        assert weights.shape == (2, 3, len(found.queries(kind)), len(found.keys(kind)))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    assert not np.triu(found.weights["decoder"], 1).any()


def test_pieces_show_the_weights_as_they_are(model: Model) -> None:
    """The weights of the first layer can be computed from the embeddings."""
    found = look_at(model, SENTENCE, TARGET)
    ids = [*model.tokenizer.encode([SENTENCE])[0], EOS]
    with torch.no_grad():
        rows = one_per_row([ids])
        x = model.network.embedding(rows.ids, rows.positions, len(ids))[0]
        module = model.network.encoder[0].self_attention
        for head in range(3):
            q = module.W_q(x)[:, 5 * head : 5 * head + 5]
            k = module.W_k(x)[:, 5 * head : 5 * head + 5]
            expected = (q @ k.T / math.sqrt(5)).softmax(-1)
            np.testing.assert_allclose(found.weights["encoder"][0, head], expected, atol=1e-6)


def test_entropy_and_distance_by_hand() -> None:
    weights = np.zeros((1, 2, 2, 4), np.float32)
    weights[0, 0, :, 1] = 1  # all attend to position 1
    weights[0, 1] = 0.25
    assert entropy(weights).tolist() == [[0.0, 2.0]]
    assert not np.signbit(entropy(weights)).any()
    assert distance(weights).tolist() == [[0.5, (1.5 + 1.0) / 2]]


def test_the_account_of_a_search(model: Model) -> None:
    beam, alpha = model.recipe.search.beam, model.recipe.search.alpha
    found = look_at(model, SENTENCE, listen=True)
    assert found.account is not None
    steps = found.account.steps
    for length, step in enumerate(steps, 1):
        assert len(step) == 2 * beam
        assert [one.log_p for one in step] == sorted((one.log_p for one in step), reverse=True)
        alive = [one for one in step if one.fate in ("lives", "dies", "left")]
        assert len(alive) <= beam
        worst = min((one.log_p for one in alive), default=math.inf)
        for one in step:
            assert one.score == pytest.approx(one.log_p / ((5 + length) / 6) ** alpha, abs=1e-5)
            assert (one.piece == "</s>") == (one.fate in ("finished", "too low"))
            if one.fate == "dropped":
                assert one.log_p <= worst
    assert {one.fate for one in steps[-1]} & {"lives", "dies"} == set()
    assert {one.fate for step in steps[:-1] for one in step} & {"left"} == set()
    best = max((one for step in steps for one in step if one.wins), key=lambda one: len(one.text))
    assert best.text == found.translation
    assert found.translation in found.account.why


def test_candidates_have_the_probability_that_training_gives_them(model: Model) -> None:
    found = look_at(model, SENTENCE, listen=True)
    assert found.account is not None
    ids = model.tokenizer.encode([found.translation])[0]
    (first, *_) = found.account.steps[0]
    token = next(i for i in range(model.tokenizer.size)
                 if model.tokenizer.decode([[i]])[0] == first.text)  # fmt: skip
    assert first.log_p == pytest.approx(log_p_of(model, [token]), abs=1e-4)
    assert ids  # the translation is not empty
    assert sum(found.log_p) <= 0


def test_an_account_in_words(model: Model) -> None:
    account = look_at(model, SENTENCE, listen=True).account
    text = str(account)
    assert account is not None
    assert text.count("step ") >= len(account.steps)
    assert "won with" in text
    assert "The search ended" in text
    one = account.as_json()["steps"][0][0]
    assert Candidate(**one) == account.steps[0][0]


@pytest.mark.parametrize(
    ("sentence", "target", "said"),
    [
        (" \t", None, "the sentence is empty: give some text"),
        ("a", "", "the translation is empty: give some text"),
        ("x" * 400, None, "the sentence has 402 pieces, and this model takes at most 97"),
        ("a", "x" * 400, "the translation has 402 pieces, and this model takes at most 97"),
        ("\udc80", None, "lone surrogate"),
    ],
)
def test_refused(model: Model, sentence: str, target: str | None, said: str) -> None:
    with pytest.raises(DataError, match=said):
        look_at(model, sentence, target)


def test_a_text_of_which_the_tokenizer_keeps_nothing_is_refused(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.tokenizer, "encode", lambda lines, side="source": [[] for _ in lines])
    with pytest.raises(DataError, match="the sentence is empty"):
        look_at(model, "\u200b")


def test_a_damaged_model_is_refused(model: Model) -> None:
    damaged = replace(model, network=copy.deepcopy(model.network))
    damaged.network.encoder[0].self_attention.W_q.weight.data[0, 0] = math.nan
    for target in (None, TARGET):
        with pytest.raises(ModelError, match="weights are damaged"):
            look_at(damaged, SENTENCE, target)


def test_json_is_all_of_it(model: Model) -> None:
    found = look_at(model, SENTENCE, TARGET)
    content = found.as_json()
    for kind in KINDS:
        np.testing.assert_allclose(content["attention"][kind], found.weights[kind], atol=1e-6)
    assert Look.queries(found, "cross") == tuple(content["written"])
    assert "search" not in content
