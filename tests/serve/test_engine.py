"""The engine: queueing, the second search, and flags."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from regard import decoding, division
from regard.equations import Arithmetic
from regard.mending import mend
from regard.serve.engine import Engine, Rendering, SentenceRequest
from regard.serve.languages import LanguagePair
from regard.serve.metrics import Metrics
from regard.translation import Translation, Translator
from serve.conftest import Shouting


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def start(metrics: Metrics) -> Iterator[Any]:
    started: list[Engine] = []

    def begin(translator: Translator, retry: bool = True) -> Engine:
        started.append(
            Engine(
                LanguagePair("en", "de"),
                translator,
                metrics,
                turn=threading.Lock(),
                most_waiting=100,
                retry=retry,
            )
        )
        return started[-1]

    yield begin
    for engine in started:
        engine.close()


def rendered(engine: Engine, *sentences: str, n_best: int = 1) -> list[Rendering]:
    asked = [SentenceRequest(sentence, n_best) for sentence in sentences]
    return [future.result(30) for future in engine.submit(asked)]


def test_what_looks_wrong_is_searched_again_and_the_first_sound_one_is_given(
    start: Any, shouting: Shouting, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[str]] = []

    def again(_: Translator, sentences: Sequence[str]) -> list[list[Translation]]:
        asked.append(sentences)
        return [[Translation(text, 0.0) for text in ("x x x", "sound", "too")]] * len(sentences)

    monkeypatch.setattr(mend, "search_again", again)
    good, echo = rendered(start(shouting), "say this", "ONE TWO THREE", n_best=2)
    assert asked == [["ONE TWO THREE"]]
    assert [t.text for t in good.translations] == ["SAY THIS", "SAY THIS!"]
    assert (good.flaws, good.retried) == ((), False)
    assert [t.text for t in echo.translations] == ["sound", "too"]
    assert (echo.flaws, echo.retried) == ((), True)


def test_a_server_is_not_copied(
    start: Any, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the process would keep the sockets of its clients open."""
    monkeypatch.setattr(decoding, "COPIES_FROM", 0)
    monkeypatch.setattr(translator.model.by, "few_rows_limits", None)
    monkeypatch.setattr(Arithmetic, "batch_tokens", 8)
    monkeypatch.setattr(decoding, "can_be_copied", lambda: True)
    monkeypatch.setattr(division, "Copies", lambda *_: pytest.fail("copied"))
    monkeypatch.setattr(translator, "may_be_copied", True)
    before, lines = torch.get_num_threads(), ["the dog", "the cat", "the tree"] * 3
    try:
        torch.set_num_threads(2)
        with pytest.raises(pytest.fail.Exception, match="copied"):
            translator.translate(lines)
        assert len(rendered(start(translator), *lines)) == 9
    finally:
        torch.set_num_threads(before)


def test_a_region_has_the_sentences_of_its_language(shouting: Shouting, metrics: Metrics) -> None:
    austrian = LanguagePair("de-AT", "en")
    engine = Engine(austrian, shouting, metrics, turn=threading.Lock(), most_waiting=1)
    passage = engine.read("Am 3. Oktober ist Feiertag. Ja.", is_html=False)
    engine.close()
    assert passage.sentences == ("Am 3. Oktober ist Feiertag.", "Ja.")


def test_each_sentence_gets_the_code_that_the_text_begins_with(
    start: Any, shouting: Shouting
) -> None:
    engine = start(shouting)
    passage = engine.read(">>de<< - Go home. Now!\nOr later.", is_html=False)
    assert passage.sentences == (">>de<<Go home.", ">>de<<Now!", ">>de<<Or later.")
    assert passage.joined(["A", "B", "C"]) == "- A B\nC"
    passage = engine.read(">>de<<<p>Go home.</p>", is_html=True)
    assert passage.sentences == (">>de<<Go home.",)
    assert passage.joined(["A"]) == "<p>A</p>"


def test_what_stays_wrong_is_given_and_flagged_and_counted(
    start: Any, shouting: Shouting, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(_: Translator, sentences: Sequence[str]) -> list[list[Translation]]:
        return [[Translation(sentence, 0.0)] for sentence in sentences]

    monkeypatch.setattr(mend, "search_again", again)
    (echo,) = rendered(start(shouting), "ONE TWO THREE")
    assert echo.translations[0].text == "ONE TWO THREE"
    assert (echo.flaws, echo.retried) == (("echo",), True)
    assert 'regard_flaws_total{flaw="echo",pair="en-de"} 1.0' in metrics.as_text().decode()


def test_without_a_second_search_flaws_are_still_named(
    start: Any, shouting: Shouting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mend, "search_again", lambda *_: pytest.fail("searched again"))
    (echo,) = rendered(start(shouting, retry=False), "ONE TWO THREE")
    assert (echo.flaws, echo.retried) == (("echo",), False)


def test_a_real_model_translates_and_what_it_repeats_is_mended_or_flagged(
    start: Any, translator: Translator
) -> None:
    sentences = ["the dog sees the cat", "the bird likes the tree", " ".join(["house"] * 60)]
    *short, split = rendered(start(translator), *sentences, n_best=2)
    for rendering in (*short, split):
        assert 1 <= len(rendering.translations) <= 2
    assert any(rendering.retried for rendering in short), "this test needs a model that errs"
    assert all(rendering.retried for rendering in short if rendering.flaws)
    assert not split.retried  # it has more pieces than the model takes at once, so it was split
