"""The guard around every request: limits, headers, and a log without users' texts."""

import asyncio
import gc
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from regard.serve import v1
from regard.serve.app import create_app
from regard.serve.engine import Engine
from regard.serve.guard import Guard
from regard.serve.languages import LanguagePair
from regard.serve.metrics import Metrics
from regard.serve.service import ServerLimits, Service
from serve.conftest import Serve, Shouting, listening

ASKED = {"q": "The dog sleeps.", "source": "en", "target": "de"}
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"x" * 10_000_000, JSON, 413),
        (b"q=" + b"x" * 10_000_000, FORM, 413),
        (b'{"q": "\xff\xfe"}', JSON, 400),
        (b"q=%ff&source=en&target=de", FORM, 400),
        (b"q=\xff&source=en&target=de", FORM, 400),
        (b"[" * 50_000, JSON, 400),
        (b'{"q":' * 20_000 + b"1" + b"}" * 20_000, JSON, 400),
        (b'{"q": ' + b"9" * 20_000 + b"}", JSON, 400),
        (b'{"q": "\\ud800", "source": "en", "target": "de"}', JSON, 400),
        (b'{"q": NaN, "source": "en", "target": "de"}', JSON, 400),
        (b"[1, 2]", JSON, 400),
        (b"", JSON, 400),
        (b"", {}, 400),
        (b"&".join(b"a%d=1" % i for i in range(1000)), FORM, 400),
        (b"garbage", {"content-type": "multipart/form-data; boundary=x"}, 400),
        (b"garbage", {"content-type": "multipart/form-data"}, 400),
        (b'--x\r\ncontent-disposition: form-data; name="q"; filename="f"\r\n\r\na\r\n--x--\r\n',
         {"content-type": "multipart/form-data; boundary=x"}, 400),
        (b"\x1f\x8b", JSON | {"content-encoding": "gzip"}, 415),
        (b"x=a", {"content-type": "text/plain\x00; \xff"}, 400),
    ],
)  # fmt: skip
def test_bodies_of_any_kind_are_refused_in_one_sentence(
    serve: Serve, body: bytes, headers: dict[str, str], status: int
) -> None:
    client = serve()
    sent = {k.encode(): v.encode("latin-1") for k, v in headers.items()}
    for path in ("/translate", "/detect"):
        answer = client.post(path, content=body, headers=sent)
        assert (answer.status_code, list(answer.json())) == (status, ["error"]), path
    answer = client.post("/v1/translate", content=body, headers=sent)
    if status != 400:  # what is refused unread has one status for all paths
        assert answer.status_code == status
    assert 400 <= answer.status_code < 500
    assert list(answer.json()) == ["error"]


def test_what_says_that_it_is_far_too_large_is_not_waited_for(serve: Serve) -> None:
    """The refusal comes before the body does."""
    headers = JSON | {"content-length": str(2**40)}
    answer = serve().post("/translate", content=b"{", headers=headers)
    assert answer.status_code == 413


def test_what_is_refused_unread_is_counted_for_its_path(serve: Serve) -> None:
    client, large = serve(), JSON | {"content-length": str(2**40)}
    client.post("/translate", content=b"{", headers=large)
    client.post("/v1/look", content=b"{", headers=JSON | {"content-encoding": "gzip"})
    client.post("/made-up", content=b"{", headers=large)
    shown = client.get("/metrics").text
    for path, status in (("/translate", 413), ("/v1/look", 415), ("other", 413)):
        assert f'regard_requests_total{{path="{path}",status="{status}"}} 1.0' in shown


def test_every_answer_has_safe_headers_and_no_other_site_may_read_it(serve: Serve) -> None:
    client = serve()
    for path in ("/health", "/docs", "/nothing", "/metrics"):
        answer = client.get(path, headers={"Origin": "https://elsewhere.example"})
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers
    form = client.post("/translate", data=ASKED, headers={"Origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in form.headers


def test_a_site_that_is_named_may_read_every_answer(serve: Serve) -> None:
    client = serve(origins=("https://ours.example",))
    origin = {"Origin": "https://ours.example"}
    answers = [
        client.get("/health", headers=origin),
        client.post("/translate", json=ASKED | {"q": "explode"}, headers=origin),
        client.post("/translate", content=b"x" * 10_000_000, headers=origin | JSON),
    ]
    assert [answer.status_code for answer in answers] == [200, 500, 413]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == "https://ours.example"
        assert answer.headers["access-control-expose-headers"] == "Retry-After"
        assert answer.headers["x-content-type-options"] == "nosniff"
    other = client.get("/health", headers={"Origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in other.headers


def test_the_log_has_a_line_for_each_request_and_none_of_its_text(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "regard.serve")
    client = serve()
    client.post(
        "/translate?secret=1", json=ASKED | {"q": "secret one. secret two.", "alternatives": 1}
    )
    client.get("/secret")
    client.post("/v1/translate", json={"text": {"secret": 1}, "secret": "secret"})
    client.post("/translate", json=ASKED | {"q": "explode"})
    assert "secret" not in caplog.text.replace("test_the_log", "")
    lines = [json.loads(r.message) for r in caplog.records if r.name == "regard.serve"]
    assert [(line["path"], line["status"]) for line in lines] == [
        ("/translate", 200), ("other", 404), ("/v1/translate", 400), ("/translate", 500),
    ]  # fmt: skip
    assert lines[0]["pair"] == "en-de"
    assert (lines[0]["characters"], lines[0]["sentences"]) == (23, 2)
    assert lines[3]["error"].startswith("RuntimeError at ")


def test_a_failure_of_ours_says_nothing_of_its_cause(serve: Serve) -> None:
    answer = serve().post("/translate", json=ASKED | {"q": "explode"})
    assert (answer.status_code, answer.json()) == (500, {"error": "Internal error"})


def test_a_failure_of_an_extension_is_one_of_ours(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Panic(BaseException):
        """As the exceptions of extension modules in Rust."""

    def panic(*_: Any, **__: Any) -> None:
        raise Panic

    client = serve()
    monkeypatch.setattr("regard.serve.engine.Engine.read", panic)
    answer = client.post("/translate", json=ASKED)
    assert (answer.status_code, answer.json()) == (500, {"error": "Internal error"})
    asked = {"text": "a", "source": "en", "target": "de", "stream": True}
    streamed = client.post("/v1/translate", json=asked)
    assert "event: error" in streamed.text
    assert caplog.text.count("Panic at ") == 2


def test_after_a_body_that_is_too_large_nothing_more_is_read(shouting: Shouting) -> None:
    app = create_app([(LanguagePair("en", "de"), shouting)])
    with (
        listening(app) as address,
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), 10) as connection,
    ):
        head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000000\r\n\r\n"
        connection.sendall(head.encode())
        answer = b""
        while some := connection.recv(4096):
            answer += some
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()


def test_metrics_count_by_path_and_status(serve: Serve) -> None:
    client = serve()
    client.post("/translate", json=ASKED)
    for i in range(3):
        client.get(f"/nothing{i}")
    shown = client.get("/metrics").text
    assert 'regard_requests_total{path="/translate",status="200"} 1.0' in shown
    assert 'regard_requests_total{path="other",status="404"} 3.0' in shown
    assert 'regard_batch_sentences_count{pair="en-de"} 1.0' in shown
    assert 'regard_waiting_sentences{pair="en-de"} 0.0' in shown


def test_the_reference_page_names_every_route_and_loads_nothing(serve: Serve) -> None:
    page = serve().get("/docs").text
    for path in ("/translate", "/v1/translate", "/languages", "/detect", "n_best", "alternatives"):
        assert path in page
    assert "src=" not in page
    assert "<script" not in page
    assert "http" not in page


@pytest.fixture
def engine(shouting: Shouting) -> Iterator[Engine]:
    engine = Engine(
        LanguagePair("en", "de"), shouting, Metrics(), turn=threading.Lock(), most_waiting=9
    )
    yield engine
    engine.close()


async def _answered(
    app: Any, messages: list[dict[str, Any]], path: str = "/translate", slowly: float = 0.0
) -> list[Any]:
    """The messages sent to a client that sends these messages and then waits.

    The client takes `slowly` seconds to read a part of the answer, and half of them to disconnect.
    """
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if messages:
            await asyncio.sleep(slowly / 2 if messages[0]["type"] == "http.disconnect" else 0)
            return messages.pop(0)
        await asyncio.sleep(60)
        raise AssertionError

    async def send(message: Any) -> None:
        await asyncio.sleep(slowly if message["type"] == "http.response.body" else 0)
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": [(b"content-type", b"application/json")],
        "http_version": "1.1", "scheme": "http", "client": ("test", 1), "server": ("test", 80),
    }  # fmt: skip
    await app(scope, receive, send)
    return sent


def test_a_body_that_never_comes_is_given_up(engine: Engine) -> None:
    async def never(*_: Any) -> None:
        raise AssertionError

    guard = Guard(never, Service([engine], Metrics(), ServerLimits(seconds=0.1)))
    part = {"type": "http.request", "body": b"{", "more_body": True}
    start, _ = asyncio.run(_answered(guard, [part]))
    assert start["status"] == 408


def test_a_body_in_pieces_is_bounded_too(engine: Engine) -> None:
    async def never(*_: Any) -> None:
        raise AssertionError

    guard = Guard(never, Service([engine], Metrics(), ServerLimits()))
    piece = {"type": "http.request", "body": b"x" * 2**20, "more_body": True}
    start, _ = asyncio.run(_answered(guard, [dict(piece) for _ in range(40)]))
    assert start["status"] == 413


def test_what_a_client_no_longer_waits_for_is_not_translated(shouting: Shouting) -> None:
    shouting.gate.clear()
    app = create_app([(LanguagePair("en", "de"), shouting)])

    async def scenario() -> None:
        whole = {"type": "http.request", "body": json.dumps(ASKED).encode(), "more_body": False}
        first = asyncio.create_task(_answered(app, [dict(whole)]))
        while not shouting.asked:  # wait until the translator is busy with it
            await asyncio.sleep(0.01)
        gone = {"type": "http.disconnect"}
        left = {**whole, "body": json.dumps(ASKED | {"q": "left"}).encode()}
        for path, extra in (("/translate", {}), ("/v1/translate", {"stream": True})):
            asked = (
                ASKED | {"q": "left"}
                if path == "/translate"
                else {
                    "text": "left",
                    "source": "en",
                    "target": "de",
                    **extra,
                }
            )
            left = {**whole, "body": json.dumps(asked).encode()}
            await _answered(app, [left, dict(gone)], path)
        await asyncio.sleep(0)
        shouting.gate.set()
        assert (await first)[0]["status"] == 200

    asyncio.run(scenario())
    assert shouting.asked == [["The dog sleeps."]]


def _streaming(text: str) -> dict[str, Any]:
    """A request for a stream, as one message."""
    asked = {"text": text, "source": "en", "target": "de", "stream": True, "partial": True}
    return {"type": "http.request", "body": json.dumps(asked).encode(), "more_body": False}


def test_a_client_that_reads_slowly_gets_the_whole_stream(shouting: Shouting) -> None:
    app = create_app([(LanguagePair("en", "de"), shouting)], limits=ServerLimits(seconds=0.2))
    asked = [_streaming("one. two. three. four.")]
    _, *parts = asyncio.run(_answered(app, asked, "/v1/translate", slowly=0.07))
    kinds = [part["body"].partition(b"\n")[0] for part in parts]
    assert kinds == [*[b"event: sentence"] * 4, b"event: done", b""]
    assert not parts[-1].get("more_body")


def test_a_slow_client_also_hears_that_a_translation_takes_too_long(shouting: Shouting) -> None:
    shouting.gate.clear()
    shouting.said = ["O", "ON"]
    app = create_app([(LanguagePair("en", "de"), shouting)], limits=ServerLimits(seconds=0.1))
    _, *parts = asyncio.run(_answered(app, [_streaming("one")], "/v1/translate", slowly=0.15))
    assert b"event: partial" in parts[0]["body"]
    assert b"within 0.1 seconds" in parts[-2]["body"]
    assert parts[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_a_client_that_takes_nothing_more_has_gone(
    shouting: Shouting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(v1, "STALLED", 0.05)
    app = create_app([(LanguagePair("en", "de"), shouting)])
    sent = asyncio.run(_answered(app, [_streaming("one. two.")], "/v1/translate", slowly=20))
    assert [message["type"] for message in sent] == ["http.response.start"]


def test_a_stream_that_nobody_reads_leaves_the_queue_at_once(shouting: Shouting) -> None:
    shouting.gate.clear()
    shouting.said = ["O"]
    app = create_app([(LanguagePair("en", "de"), shouting)])
    asked = _streaming("one.\n" + "a " * 2400)  # in eight parts, too many for one batch

    async def scenario() -> None:
        await _answered(app, [asked, {"type": "http.disconnect"}], "/v1/translate", slowly=0.2)
        shouting.gate.set()
        while not shouting.asked:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)  # another batch would come at once

    gc.disable()  # it would close a generator that was left
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()
    [batch] = shouting.asked
    assert batch[0] == "one."
    assert len(batch) < 9
