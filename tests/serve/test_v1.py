"""Our own interface: scores, flags, and sentences as they are ready."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from regard.serve.app import create_app
from regard.serve.languages import Pair
from regard.translate import Translator
from serve.conftest import Serve, Shouting

ASKED = {"text": "one.\n- two. ", "source": "en", "target": "de"}


def events(body: str) -> list[tuple[str, Any]]:
    """Server-sent events, each with what it holds."""
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


def test_html_is_given_back_as_html(serve: Serve) -> None:
    asked = ASKED | {"text": "<p>one &lt; two</p>", "format": "html"}
    assert serve().post("/v1/translate", json=asked).json()["text"] == "<p>ONE &lt; TWO</p>"


def test_a_real_model_answers_with_its_n_best_list(translator: Translator) -> None:
    with TestClient(create_app([(Pair("en", "de"), translator)])) as client:
        asked = ASKED | {"text": "the dog sees the cat\n\nthe bird likes the tree", "n_best": 9}
        answer = client.post("/v1/translate", json=asked).json()
    assert len(answer["sentences"]) == 2
    for sentence in answer["sentences"]:
        scores = [t["score"] for t in sentence["translations"]]
        assert 1 <= len(scores) <= translator.recipe.beam
        assert scores == sorted(scores, reverse=True)
    assert "\n\n" in answer["text"]
