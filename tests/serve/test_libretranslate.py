"""LibreTranslate's interface: LibreTranslate's clients work unchanged."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from libretranslatepy import LibreTranslateAPI
from starlette.testclient import TestClient

from regard.serve.app import create_app
from regard.serve.keys import Keys
from regard.serve.languages import LanguagePair
from serve.conftest import Serve, Shouting, listening

DAMAGED = "Invalid request: the form is damaged or not UTF-8"
ASKED = {"q": "The dog sleeps.", "source": "en", "target": "de"}
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
def client(serve: Serve) -> TestClient:
    return serve()


def test_its_own_client_works_unchanged(shouting: Shouting) -> None:
    app = create_app([(LanguagePair("en", "de"), shouting)], keys=Keys(["secret"]))
    with listening(app) as address:
        api = LibreTranslateAPI(address, api_key="secret")
        assert api.translate("the dog sleeps. it is tired.\n", "en", "de") == (
            "THE DOG SLEEPS. IT IS TIRED.\n"
        )
        assert api.detect("Das ist ein Haus.")[0]["language"] == "de"
        assert [language["code"] for language in api.languages()] == ["de", "en"]


@pytest.mark.parametrize("how", ["json", "data", "files", "params"])
def test_a_text_comes_as_json_as_a_form_or_in_the_address(client: TestClient, how: str) -> None:
    sent: Any = {k: (None, v) for k, v in ASKED.items()} if how == "files" else ASKED
    answer = client.post("/translate", **{how: sent})
    assert (answer.status_code, answer.json()) == (200, {"translatedText": "THE DOG SLEEPS."})
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("how", ["data", "files", "params"])
def test_of_a_field_that_occurs_twice_the_first_value_counts(client: TestClient, how: str) -> None:
    pairs = [*ASKED.items(), ("q", "Another.")]
    if how == "data":
        sent: Any = {"content": urlencode(pairs), "headers": {"content-type": FORM}}
    else:
        sent = {how: [(k, (None, v)) for k, v in pairs] if how == "files" else pairs}
    assert client.post("/translate", **sent).json() == {"translatedText": "THE DOG SLEEPS."}


def test_null_is_as_good_as_no_value(serve: Serve) -> None:
    nothing = {"format": None, "alternatives": None, "api_key": None}
    answer = serve().post("/translate", json=ASKED | nothing)
    assert (answer.status_code, answer.json()) == (200, {"translatedText": "THE DOG SLEEPS."})
    bearer = {"Authorization": "Bearer one"}
    answer = serve(keys=["one"]).post("/detect", json=ASKED | nothing, headers=bearer)
    assert answer.status_code == 200
    answer = serve().post("/translate", json=ASKED | {"q": None})
    assert answer.json() == {"error": "Invalid request: missing q parameter"}


def test_a_form_may_be_as_large_as_the_limits_allow(serve: Serve) -> None:
    sent: Any = {k: (None, v) for k, v in (ASKED | {"q": "가 " * 280_000}).items()}
    answer = serve(characters=10**6, retry=False, seconds=300).post("/translate", files=sent)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["translatedText"]) == 560_000


@pytest.mark.parametrize(
    ("charset", "text", "status"),
    [
        ("unicode_escape", b"\\ud800", 400),
        ("utf-7", b"+2AA-", 400),
        ("undefined", b"a", 400),
        ("punycode", b"a-", 400),  # its time grows with the square of the length
        ('"UTF-8"', "ä".encode(), 200),
        ("ISO-8859-1", b"\xe4", 200),
        ("utf-8", b"\xe4", 400),
    ],
)
def test_a_form_names_its_charset(
    client: TestClient, charset: str, text: bytes, status: int
) -> None:
    head = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    end = b"-" * (charset == "punycode")  # in it, source- is the name source
    fields = (b"source", b"en" + end), (b"target", b"de" + end), (b"q", text)
    body = b"".join(head % (name + end, value) for name, value in fields) + b"--x--\r\n"
    kind = {"content-type": f"multipart/form-data; boundary=x; charset={charset}"}
    answer = client.post("/translate", content=body, headers=kind)
    told = {"error": DAMAGED} if status == 400 else {"translatedText": "Ä"}
    assert (answer.status_code, answer.json()) == (status, told)


@pytest.mark.parametrize(
    ("charset", "text", "status"),
    [("iso-8859-1", b"%E4", 200), ("iso-8859-1", b"\xe4", 200), ("utf-8", b"%C3%A4", 200),
     ("utf-8", b"\xe4", 400), ("punycode", b"a", 400)],
)  # fmt: skip
def test_so_does_a_form_of_a_page(
    client: TestClient, charset: str, text: bytes, status: int
) -> None:
    kind = {"content-type": f"{FORM}; charset={charset}"}
    body = b"source=en&target=de&q=" + text
    answer = client.post("/translate", content=body, headers=kind)
    told = {"error": DAMAGED} if status == 400 else {"translatedText": "Ä"}
    assert (answer.status_code, answer.json()) == (status, told)


def test_json_may_begin_with_a_byte_order_mark(client: TestClient) -> None:
    body = b"\xef\xbb\xbf" + json.dumps(ASKED | {"q": "one."}).encode()
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.json() == {"translatedText": "ONE."}


def test_a_list_gives_a_list_in_its_order(client: TestClient, shouting: Shouting) -> None:
    answer = client.post("/translate", json=ASKED | {"q": ["one. two.", "", "- three\n\n😀"]})
    assert answer.json() == {"translatedText": ["ONE. TWO.", "", "- THREE\n\n😀"]}
    assert sorted(s for batch in shouting.asked for s in batch) == ["one.", "three", "two."]


def test_alternatives_are_other_versions_of_the_whole_text_up_to_the_beam(
    client: TestClient,
) -> None:
    answer = client.post("/translate", json=ASKED | {"q": "one. two.", "alternatives": 2})
    assert answer.json() == {
        "translatedText": "ONE. TWO.",
        "alternatives": ["ONE.! TWO.!", "ONE.!! TWO.!!"],
    }
    answer = client.post("/translate", data=ASKED | {"alternatives": "99"})
    assert len(answer.json()["alternatives"]) == 3
    answer = client.post("/translate", json=ASKED | {"q": ["a", "b"], "alternatives": 1})
    assert answer.json()["alternatives"] == [["A!"], ["B!"]]
    answer = client.post("/translate", json=ASKED | {"q": "twice.", "alternatives": 3})
    assert answer.json()["alternatives"] == ["TWICE.!"]


def test_html_keeps_its_tags_and_text_that_looks_like_it_is_only_text(client: TestClient) -> None:
    text = "<p>one <b>two</b></p><script>three</script>"
    answer = client.post("/translate", json=ASKED | {"q": text, "format": "html"})
    assert answer.json()["translatedText"] == "<p>ONE <b>TWO</b></p><script>three</script>"
    answer = client.post("/translate", json=ASKED | {"q": "<script>x</script>"})
    assert answer.json()["translatedText"] == "<SCRIPT>X</SCRIPT>"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_source_language_is_told_from_the_text(client: TestClient) -> None:
    answer = client.post("/translate", json=ASKED | {"source": "auto"}).json()
    assert answer["translatedText"] == "THE DOG SLEEPS."
    assert answer["detectedLanguage"]["language"] == "en"
    assert 50 < answer["detectedLanguage"]["confidence"] <= 100
    texts = ["The dog sleeps.", "The cat is big."]
    answer = client.post("/translate", json=ASKED | {"source": "auto", "q": texts}).json()
    assert [d["language"] for d in answer["detectedLanguage"]] == ["en", "en"]


def test_what_is_in_the_target_language_already_stays(client: TestClient) -> None:
    german = "Das Wetter ist heute schön."
    answer = client.post("/translate", json=ASKED | {"source": "auto", "q": german}).json()
    assert answer["translatedText"] == german
    assert client.post("/translate", json=ASKED | {"source": "de", "q": german}).status_code == 200


def test_the_language_of_html_is_told_from_its_text(client: TestClient) -> None:
    style = "<style>header { display: block } .button:hover { color: black }</style>"
    german = f"{style}<p class='card shadow'>Sch&ouml;nes\n<b>Wetter</b></p>"
    asked = ASKED | {"source": "auto", "q": [german, "<br>"], "format": "html"}
    answer = client.post("/translate", json=asked).json()
    assert answer["translatedText"] == [german, "<br>"]
    assert answer["detectedLanguage"][0]["language"] == "de"


def test_of_a_list_only_what_is_in_another_language_is_translated(client: TestClient) -> None:
    texts = ["The dog sleeps.", "Das Wetter ist heute schön.", "The cat is big."]
    asked = ASKED | {"source": "auto", "q": texts, "alternatives": 1}
    answer = client.post("/translate", json=asked).json()
    assert answer["translatedText"] == ["THE DOG SLEEPS.", texts[1], "THE CAT IS BIG."]
    assert answer["alternatives"] == [["THE DOG SLEEPS.!"], [], ["THE CAT IS BIG.!"]]
    assert [d["language"] for d in answer["detectedLanguage"]] == ["en", "de", "en"]


@pytest.mark.parametrize("target", ["de", "en"])
def test_what_may_be_in_several_languages_is_translated(shouting: Shouting, target: str) -> None:
    app = create_app([(LanguagePair("en", "de"), shouting), (LanguagePair("de", "en"), shouting)])
    with TestClient(app) as client:
        for text in ("Hi", "OK", "Stop!"):
            asked = {"q": text, "source": "auto", "target": target}
            answer = client.post("/translate", json=asked).json()
            assert answer["translatedText"] == text.upper()
            assert answer["detectedLanguage"]["confidence"] == 50


def test_of_two_regions_the_one_that_is_the_target_stays(shouting: Shouting) -> None:
    portuguese = "Bom dia, tudo bem com você?"
    pairs = [LanguagePair("en", "pt-BR"), LanguagePair("en", "pt-PT")]
    with TestClient(create_app([(pair, shouting) for pair in pairs])) as client:
        for target in ("pt-BR", "pt-PT"):
            asked = {"q": portuguese, "source": "auto", "target": target}
            answer = client.post("/translate", json=asked).json()
            assert answer["translatedText"] == portuguese
            assert answer["detectedLanguage"]["language"] == target


def test_codes_may_be_written_in_any_way(shouting: Shouting) -> None:
    with TestClient(create_app([(LanguagePair("PT_br", "EN"), shouting)])) as client:
        assert [one["code"] for one in client.get("/languages").json()] == ["en", "pt-BR"]
        for source, target in (("pt-BR", "en"), ("pt_br", "EN"), ("auto", "En")):
            asked = {"source": source, "target": target, "q": "Bom dia, tudo bem com você?"}
            answer = client.post("/translate", json=asked).json()
            assert answer["translatedText"] == "BOM DIA, TUDO BEM COM VOCÊ?"
        asked = {"text": "um", "source": "PT-BR", "target": "eN"}
        assert client.post("/v1/translate", json=asked).json()["text"] == "UM"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"q": 5}, "Invalid request: q parameter is not text"),
        ({"q": ["a", {}]}, "Invalid request: q parameter is not text or a list of texts"),
        ({"source": None}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"source": "zz"}, "zz is not supported"),
        ({"target": "zz"}, "zz is not supported"),
        ({"source": "de", "target": "en"},
         "English (en) is not available as a target language from German (de)"),
        ({"format": "xml"}, "xml format is not supported"),
        ({"alternatives": "abc"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": [1]}, "Invalid request: alternatives parameter is not a number"),
        ({"q": "x" * 101}, "Invalid request: request (101) exceeds text limit (100)"),
        ({"q": ["x"] * 8}, "Invalid request: request (8) exceeds text limit (7)"),
    ],
)  # fmt: skip
def test_refusals_have_its_words(serve: Serve, change: dict[str, Any], problem: str) -> None:
    asked = {k: v for k, v in (ASKED | change).items() if v is not None}
    answer = serve(characters=100, items=7).post("/translate", json=asked)
    assert (answer.status_code, answer.json()) == (400, {"error": problem})


def test_what_is_not_there_is_refused_in_the_same_form(client: TestClient) -> None:
    assert client.get("/nothing").json() == {"error": "Not Found"}
    answer = client.get("/translate")
    assert (answer.status_code, answer.json()) == (405, {"error": "Method Not Allowed"})


def test_head_is_answered_wherever_get_is(client: TestClient) -> None:
    described = client.get("/openapi.json").json()["paths"]
    paths = [path for path, methods in described.items() if "get" in methods]
    others = ["/", "/site.css", "/site.js", "/texts.js", "/docs", "/metrics", "/openapi.json"]
    for path in [*paths, *others]:
        head = client.head(path)
        assert head.status_code == 200, path
        assert head.headers["content-type"] == client.get(path).headers["content-type"]
    assert client.head("/translate").status_code == 405


def test_languages_health_and_settings(serve: Serve) -> None:
    client = serve(keys=["k"], characters=77)
    assert client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": []},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    assert client.get("/health").json() == {"status": "ok"}
    settings = client.get("/frontend/settings").json()
    assert (settings["charLimit"], settings["keyRequired"]) == (77, True)
    assert settings["language"]["target"] == {"code": "de", "name": "German"}


def test_a_model_that_no_longer_translates_is_told_by_its_health(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve()
    monkeypatch.setattr("regard.serve.engine.Engine.alive", False)
    answer = client.get("/health")
    assert answer.status_code == 503
    assert answer.json() == {"error": "A model no longer translates: restart the server"}


def test_a_key_is_asked_for_where_there_are_keys(serve: Serve) -> None:
    client = serve(keys=["one", "two", "열쇠"])
    for path in ("/translate", "/detect"):
        missing, wrong = (client.post(path, json=ASKED | k) for k in ({}, {"api_key": "three"}))
        assert missing.status_code == 400
        assert "API key" in missing.json()["error"]
        assert (wrong.status_code, wrong.json()) == (403, {"error": "Invalid API key"})
        assert client.post(path, json=ASKED | {"api_key": "two"}).status_code == 200
    bearer = {"Authorization": "Bearer one"}
    assert client.post("/translate", json=ASKED, headers=bearer).status_code == 200
    written = {b"authorization": "Bearer 열쇠".encode()}
    assert client.post("/translate", json=ASKED, headers=written).status_code == 200
