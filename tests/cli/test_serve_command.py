"""`regard serve` as users run it."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from cli.refusing import Child, refused, running
from regard.arithmetic import choose
from regard.errors import RegardError
from regard.serve.service import ServerLimits

LONG = ". ".join(["the dog sees the cat", "the bird likes the tree"] * 20)


@contextmanager
def serving(*argv: str | Path) -> Iterator[tuple[Child, str]]:
    """A server, and the address that it names once it listens.

    tests/cli/test_deployment.py starts some by a new Python, as users do.
    """
    with running("serve", "--port", "0", *argv) as server:
        yield server, server.line()


def asked(address: str, q: str) -> str:
    body = json.dumps({"q": q, "source": "en", "target": "de"}).encode()
    request = Request(f"{address}/translate", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        found: str = json.load(answer)["translatedText"]
    return found


def test_a_sigterm_that_comes_with_the_address_ends_it(made: Path) -> None:
    with serving(f"{made / 'model'}=en-de") as (server, _):
        server.send_signal(signal.SIGTERM)
        status, _, errors = server.result(60)
        assert status == 0, errors


def test_it_translates_and_on_sigterm_finishes_what_it_has_taken(made: Path) -> None:
    with serving(f"{made / 'model'}=en-de") as (server, address):
        assert asked(address, "the dog\n\n- 12\n").endswith("\n\n- 12\n")
        answers: list[str] = []
        asking = threading.Thread(target=lambda: answers.append(asked(address, LONG)))
        asking.start()
        while not taken(address):
            pass
        server.send_signal(signal.SIGTERM)
        asking.join(60)
        assert len(answers) == 1
        status, _, errors = server.result(60)
        assert status == 0, errors
    lines = [json.loads(line) for line in errors.splitlines()]
    assert [line["status"] for line in lines if line["path"] == "/translate"] == [200, 200]
    assert "dog" not in errors


def test_what_offers_another_protocol_is_answered_as_without_the_offer(made: Path) -> None:
    body = json.dumps({"q": "the dog", "source": "en", "target": "de"}).encode()
    head = (
        b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    with serving(f"{made / 'model'}=en-de") as (server, address):
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as asking:
            asking.sendall(head + body)
            answer = asking.recv(2**16)
        assert answer.startswith(b"HTTP/1.1 200 ")
        server.send_signal(signal.SIGTERM)
        errors = server.result(60).stderr
    assert [json.loads(line)["status"] for line in errors.splitlines()] == [200]


def test_a_second_ctrl_c_ends_it_at_once(made: Path) -> None:
    with serving(f"{made / 'model'}=en-de", "--characters", "100000") as (server, address):

        def ask() -> None:
            with pytest.raises(OSError):
                asked(address, ". ".join(LONG for _ in range(40)))

        asking = threading.Thread(target=ask)
        asking.start()
        while not begun(address):
            pass
        server.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert server.is_running()
        server.send_signal(signal.SIGINT)
        status, _, errors = server.result(60)
        asking.join(60)
    assert status == 130
    assert errors.splitlines()[-1] == "regard: interrupted"
    assert "Traceback" not in errors


def begun(address: str) -> bool:
    """Whether sentences wait or are translated, or have been."""
    with urlopen(f"{address}/metrics", timeout=60) as answer:
        shown = answer.read().decode()
    waiting = 'regard_waiting_sentences{pair="en-de"} 0.0' not in shown
    return waiting or 'regard_batch_sentences_count{pair="en-de"} 0.0' not in shown


def taken(address: str) -> bool:
    """Whether the sentences of a second request wait, or have been translated."""
    with urlopen(f"{address}/metrics", timeout=60) as answer:
        shown = answer.read().decode()
    waiting = 'regard_waiting_sentences{pair="en-de"} 0.0' not in shown
    return waiting or 'regard_batch_sentences_count{pair="en-de"} 1.0' not in shown


def test_a_model_needs_its_languages(made: Path) -> None:
    model = made / "model"
    assert "give its languages" in refused("serve", model)
    assert "'english' is not a language pair" in refused("serve", f"{model}=english")
    assert "'x' is not a language pair" in refused("serve", model, "--pair", "x")
    assert "--pair is for a model without =en-de, and each has one" in refused(
        "serve", f"{model}=en-de", "--pair", "en-fr"
    )
    assert "two models for en-de" in refused(
        "serve", f"{model}=en-de", f"{model}=en-de", "--port", 0
    )


def test_models_joined_by_a_plus_work_together(made: Path) -> None:
    model = made / "model"
    with serving(f"{model}=en-de+{model}=en-de") as (_, address):
        assert asked(address, "the dog") != ""
    assert "have one pair of languages" in refused("serve", f"{model}=en-de+{model}=en-fr")
    assert "give its languages" in refused("serve", f"{model}=en-de+{model}")
    assert "a model is missing" in refused("serve", f"{model}+", "--pair", "en-de")


def test_a_model_must_be_one_and_a_port_free(made: Path, tmp_path: Path) -> None:
    assert "no such model" in refused("serve", f"{tmp_path / 'none'}=en-de", "--port", 0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("serve", f"{made / 'model'}=en-de", "--port", port)
    assert f"--port {port}: cannot listen there" in said
    keys = tmp_path / "keys"
    keys.write_text("")
    assert "no API key" in refused("serve", f"{made / 'model'}=en-de", "--keys", keys)


@pytest.mark.parametrize(
    "option",
    [
        *("--precision=fp99", "--beam=0", "--host=no.such.host.invalid"),
        *("--cors=example.org", "--cors=https://example.org/"),
    ],
)
def test_a_wrong_option_is_refused(made: Path, option: str) -> None:
    name = option.strip("-").partition("=")[0]
    assert name in refused("serve", f"{made / 'model'}=en-de", option)


@pytest.mark.parametrize("precision", ["auto", "fp32"])
def test_an_engine_takes_no_precision_on_any_machine(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "has_bf16", lambda _: False)
    said = refused("serve", "x=en-de", "--engine", "onnx", "--precision", precision, "--port", 0)
    assert said == f"--engine does not go with --precision {precision}: leave out one of the two"


@pytest.mark.parametrize(
    ("options", "again"),
    [((), True), (("--no-retry",), False), (("--engine", "onnx"), True),
     (("--engine", "ctranslate2"), False), (("--engine", "ctranslate2", "--retry"), True)],
)  # fmt: skip
def test_a_second_search_is_not_made_by_ctranslate2_unless_asked_for(
    options: tuple[str, ...], again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def created(*_: object, limits: ServerLimits, **__: object) -> None:
        found.append(limits.retry)
        raise RegardError("the application was made")

    monkeypatch.setattr("regard.cli.serve._opened", lambda *_: None)
    monkeypatch.setattr("regard.serve.app.create_app", created)
    assert refused("serve", "x=en-de", *options, "--port", 0) == "the application was made"
    assert found == [again]
