"""The routes of /v1: scores, flaws, attention and streams."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from starlette.testclient import TestClient

from regard.families.choose import new_model
from regard.recipe import ModelRecipe, SearchRecipe
from regard.serve import engine, schema
from regard.serve.app import create_app
from regard.serve.languages import LanguagePair
from regard.text.tokenizer import EOS
from regard.translation import Translation, Translator
from regard.view.look import Look, seen
from regard.view.recording import KINDS
from serve.conftest import Serve, Shouting, listening
from untrained import TOKENIZER

ASKED = {"text": "one.\n- two. ", "source": "en", "target": "de"}


def events(body: str) -> list[tuple[str, Any]]:
    """Server-sent events, each with its kind and its content."""
    blocks = [block.split("\n") for block in body.split("\n\n")[:-1]]
    return [
        (kind.removeprefix("event: "), json.loads(data.removeprefix("data: ")))
        for kind, data in blocks
    ]


def test_the_answer_has_every_sentence_with_its_scores(serve: Serve) -> None:
    answer = serve().post("/v1/translate", json=ASKED | {"n_best": 2}).json()
    assert answer == {
        "text": "ONE.\n- TWO. ",
        "sentences": [
            {
                "source": "one.",
                "translations": [{"text": "ONE.", "score": 0.0}, {"text": "ONE.!", "score": -1.0}],
                "before": "",
                "flaws": [],
                "retried": False,
            },
            {
                "source": "two.",
                "translations": [{"text": "TWO.", "score": 0.0}, {"text": "TWO.!", "score": -1.0}],
                "before": "\n- ",
                "flaws": [],
                "retried": False,
            },
        ],
        "after": " ",
    }


def test_a_stream_gives_each_sentence_and_then_the_same_answer(serve: Serve) -> None:
    client = serve()
    whole = client.post("/v1/translate", json=ASKED).json()
    streamed = client.post("/v1/translate", json=ASKED | {"stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert events(streamed.text) == [
        *(("sentence", sentence) for sentence in whole["sentences"]),
        ("done", whole),
    ]


def test_a_stream_tells_what_is_written_so_far(shouting: Shouting) -> None:
    app = create_app([(LanguagePair("en", "de"), shouting)])
    shouting.said = ["O", "ON"]
    shouting.gate.clear()
    told = []
    with listening(app) as address, httpx2.Client(base_url=address) as client:
        asked = ASKED | {"stream": True, "partial": True}
        with client.stream("POST", "/v1/translate", json=asked) as answer:
            for text in answer.iter_text():
                told += events(text)
                shouting.gate.set()  # only now may the translation end
    assert told[0][0] == "partial"
    assert told[0][1] in [{"sentence": 0, "text": text} for text in shouting.said]
    assert [kind for kind, _ in told if kind != "partial"] == ["sentence", "sentence", "done"]


def test_a_failure_ends_a_stream_with_an_event_and_is_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    answer = serve().post("/v1/translate", json=ASKED | {"text": "explode", "stream": True})
    assert events(answer.text) == [("error", {"error": "Internal error"})]
    assert "RuntimeError at conftest.py" in caplog.text
    assert "secret" not in caplog.text


def test_a_stream_that_takes_too_long_says_so_as_an_event(serve: Serve, shouting: Shouting) -> None:
    shouting.gate.clear()
    streamed = serve(seconds=0.2).post("/v1/translate", json=ASKED | {"stream": True})
    ((kind, content),) = events(streamed.text)
    assert kind == "error"
    assert "within 0.2 seconds" in content["error"]


@pytest.mark.parametrize(
    "change",
    [
        {"text": None}, {"text": 1}, {"n_best": 0}, {"format": "xml"}, {"unknown": 1},
        {"stream": "perhaps"}, {"source": "xx"}, {"target": "en"},
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_and_the_field_named(serve: Serve, change: Any) -> None:
    asked = {k: v for k, v in (ASKED | change).items() if v is not None}
    answer = serve().post("/v1/translate", json=asked)
    assert answer.status_code == 400
    (field,) = change
    value = {"source": "xx", "target": "English"}.get(field, field)
    assert value in answer.json()["error"]


@pytest.mark.parametrize("route", ["translate", "look"])
@pytest.mark.parametrize("field", ["text", "source", "\ud83d"])
def test_half_a_character_is_refused(serve: Serve, route: str, field: str) -> None:
    """JavaScript sends half of a surrogate pair when a text is cut inside a character."""
    body = json.dumps({"text": "A", "source": "en", "target": "de", field: "a dog \ud83d"})
    header = {"Content-Type": "application/json"}
    answer = serve().post(f"/v1/{route}", content=body, headers=header)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Invalid request: ")


def test_html_is_given_back_as_html(serve: Serve) -> None:
    asked = ASKED | {"text": "<p>one &lt; two</p>", "format": "html"}
    assert serve().post("/v1/translate", json=asked).json()["text"] == "<p>ONE &lt; TWO</p>"


def test_a_real_model_answers_with_its_n_best_list(translator: Translator) -> None:
    with TestClient(create_app([(LanguagePair("en", "de"), translator)])) as client:
        asked = ASKED | {"text": "the dog sees the cat\n\nthe bird likes the tree", "n_best": 9}
        answer = client.post("/v1/translate", json=asked).json()
    assert len(answer["sentences"]) == 2
    for sentence in answer["sentences"]:
        scores = [t["score"] for t in sentence["translations"]]
        assert 1 <= len(scores) <= translator.recipe.beam
        assert scores == sorted(scores, reverse=True)
    assert "\n\n" in answer["text"]


@pytest.fixture(scope="module")
def real(translator: Translator) -> Iterator[TestClient]:
    with TestClient(create_app([(LanguagePair("en", "de"), translator)])) as client:
        yield client


def test_a_translation_grows_into_what_it_becomes(real: TestClient) -> None:
    text = "the dog sees the cat and the bird likes the tree"
    asked = ASKED | {"text": text, "stream": True, "partial": True}
    told = events(real.post("/v1/translate", json=asked).text)
    partly = [content["text"] for kind, content in told if kind == "partial"]
    assert partly
    assert len(partly[0]) < len(told[-1][1]["text"])
    assert told[-1] == ("done", real.post("/v1/translate", json=ASKED | {"text": text}).json())


def test_every_word_says_where_it_came_from(real: TestClient, translator: Translator) -> None:
    asked = ASKED | {"text": "the dog sees the cat. the bird sleeps.", "alignment": True}
    answer = real.post("/v1/translate", json=asked).json()
    assert len(answer["sentences"]) == 2
    for sentence in answer["sentences"]:
        found = sentence["alignment"]
        text = sentence["translations"][0]["text"]
        look = look_at(translator, sentence["source"], text)
        assert tuple(found["source"]) == look.source
        assert tuple(found["target"]) == look.written
        assert np.allclose(found["weights"], look.weights["cross"].mean((0, 1)), atol=1e-4)
        assert "attention" not in sentence


def look_at(translator: Translator, sentence: str, text: str) -> Look:
    """The look that `regard look` would show."""
    source, written = ([*p, EOS] for p in translator.tokenizer.encode([sentence, text]))
    return seen(translator.model, translator.tokenizer, sentence, source, written, by_words=True)


def test_every_head_is_told_of_one_sentence(real: TestClient, translator: Translator) -> None:
    asked = ASKED | {"text": "the dog sees the cat", "attention": True}
    (sentence,) = real.post("/v1/translate", json=asked).json()["sentences"]
    look = look_at(translator, sentence["source"], sentence["translations"][0]["text"])
    for kind in KINDS:
        assert np.allclose(sentence["attention"][kind], look.weights[kind], atol=1e-6)
    two = asked | {"text": "One dog sleeps. Two dogs bark."}
    for said in (two, two | {"stream": True}):
        assert "text: give one sentence" in real.post("/v1/translate", json=said).text


def test_attention_that_is_too_much_is_refused(
    real: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ASKED | {"text": "a dog", "attention": True, "alignment": True}
    for module, bound in ((schema, "MOST_WEIGHTS"), (engine, "MOST_CELLS")):
        with monkeypatch.context() as patch:
            patch.setattr(module, bound, 10)
            answer = real.post("/v1/translate", json=asked)
            assert (answer.status_code, "too long" in answer.json()["error"]) == (400, True)
            streamed = events(real.post("/v1/translate", json=asked | {"stream": True}).text)
            assert streamed == [("error", answer.json())]
    monkeypatch.setattr(engine, "MOST_CELLS", 10)
    (sentence,) = real.post("/v1/translate", json=asked | {"attention": False}).json()["sentences"]
    assert "alignment" not in sentence


def untrained(family: Any) -> Translator:
    model = new_model(ModelRecipe(family=family, layers=2, d_model=16), TOKENIZER.size).eval()
    return Translator(model, TOKENIZER, SearchRecipe(beam=1, max_extra=1), 100)


def test_a_model_shows_the_attention_that_it_has() -> None:
    asked = {"text": "one", "source": "en", "target": "de"}
    pairs = {family: LanguagePair("en", family[:2]) for family in ("recurrent", "dilated")}
    app = create_app([(pair, untrained(family)) for family, pair in pairs.items()])
    with TestClient(app) as client:
        asked["target"] = pairs["recurrent"].target
        answer = client.post("/v1/translate", json=asked | {"attention": True}).json()
        found = answer["sentences"][0]["attention"]
        assert set(found) == {"source", "read", "written", "cross"}
        assert client.post("/v1/look", json=asked).status_code == 200
        asked["target"] = pairs["dilated"].target
        assert client.post("/v1/translate", json=asked | {"alignment": True}).status_code == 200
        for path, more in (("translate", {"attention": True, "stream": True}), ("look", {})):
            answer = client.post(f"/v1/{path}", json=asked | more)
            assert answer.status_code == 400
            assert answer.json()["error"].endswith("this model shows no attention")


def test_the_blank_before_a_translation_from_japanese_is_told(
    shouting: Shouting, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"text": "犬。猫。", "source": "ja", "target": "en"}
    cat = [[Translation("cat", 0.0)]]
    monkeypatch.setattr(shouting, "stream", lambda some, **_: cat * len(some))
    with TestClient(create_app([(LanguagePair("ja", "en"), shouting)])) as client:
        whole = client.post("/v1/translate", json=asked).json()
        streamed = events(client.post("/v1/translate", json=asked | {"stream": True}).text)
    assert (whole["text"], [one["before"] for one in whole["sentences"]]) == ("cat cat", ["", " "])
    assert streamed == [*(("sentence", one) for one in whole["sentences"]), ("done", whole)]


def test_a_stream_gives_alignments_once(real: TestClient) -> None:
    asked = ASKED | {"text": "the dog sees", "alignment": True, "attention": True}
    whole = real.post("/v1/translate", json=asked).json()
    streamed = real.post("/v1/translate", json=asked | {"stream": True})
    (_, sentence), (_, done) = events(streamed.text)
    assert sentence == whole["sentences"][0]
    assert done["text"] == whole["text"]
    assert not {"alignment", "attention"} & set(done["sentences"][0])


def test_the_page_of_a_sentence(real: TestClient) -> None:
    asked = {"text": "</script> dog", "source": "en", "target": "de"}
    answer = real.post("/v1/look", json=asked)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text.startswith("<!doctype html>")
    assert "</script> dog" not in answer.text
    for text in ("One dog. Two dogs.", "...", "dog " * 900):
        refused = real.post("/v1/look", json=asked | {"text": text})
        assert refused.status_code == 400, text
        assert "text: give one sentence" in refused.json()["error"]


def test_what_is_not_json_is_told_as_a_mistake_of_the_whole_body(serve: Serve) -> None:
    client = serve()
    cut, kind = b'{"text": "The cat"', {"content-type": "application/json"}
    answer = client.post("/v1/translate", content=cut, headers=kind)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Invalid JSON format: Expecting ',' delimiter at")
    answer = client.post("/v1/translate", content=cut + b"}")
    assert answer.json() == {
        "error": "Invalid request: send an object as JSON, with Content-Type: application/json"
    }
