"""Overload: requests are refused in time, and accepted ones are answered."""

import threading
import time
from collections.abc import Callable

from libretranslatepy import LibreTranslateAPI
from starlette.testclient import TestClient

from regard.serve.app import create_app
from regard.serve.languages import LanguagePair
from regard.serve.service import network
from serve.conftest import Serve, Shouting, listening

ASKED = {"q": "The dog sleeps.", "source": "en", "target": "de"}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def in_background(client: TestClient, text: str, answers: list[int]) -> threading.Thread:
    def ask() -> None:
        answers.append(client.post("/translate", json=ASKED | {"q": text}).status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_a_full_queue_is_said_at_once_while_the_rest_goes_on(
    serve: Serve, shouting: Shouting
) -> None:
    client, answers = serve(waiting=2, origins=("https://ours.example",)), list[int]()
    shouting.gate.clear()
    threads = [in_background(client, "first", answers)]
    until(lambda: bool(shouting.asked))
    threads += [in_background(client, text, answers) for text in ("second. third.", "fourth")]
    until(lambda: 'waiting_sentences{pair="en-de"} 3.0' in client.get("/metrics").text)
    origin = {"Origin": "https://ours.example"}
    refused = client.post("/translate", json=ASKED, headers=origin)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert "busy" in refused.json()["error"]
    assert refused.headers["access-control-allow-origin"] == "https://ours.example"
    preflight = origin | {"Access-Control-Request-Method": "POST"}
    assert client.options("/translate", headers=preflight).status_code == 200
    assert client.get("/translate").status_code == 405
    streamed = {"text": "x", "source": "en", "target": "de", "stream": True}
    assert client.post("/v1/translate", json=streamed).status_code == 503
    assert client.get("/health").json() == {"status": "ok"}
    shouting.gate.set()
    for thread in threads:
        thread.join(30)
    assert answers == [200, 200, 200]
    assert client.post("/translate", json=ASKED).status_code == 200


def test_a_list_is_taken_as_a_whole(serve: Serve, shouting: Shouting) -> None:
    """The first text alone would fill the queue, and the second would never be translated."""
    answer = serve(waiting=2).post("/translate", json=ASKED | {"q": ["one. two.", "", "three."]})
    assert answer.json() == {"translatedText": ["ONE. TWO.", "", "THREE."]}


def test_what_takes_too_long_is_given_up(serve: Serve, shouting: Shouting) -> None:
    shouting.gate.clear()
    client = serve(seconds=0.2)
    answer = client.post("/translate", json=ASKED)
    assert answer.status_code == 504
    assert client.post("/translate", json=ASKED | {"q": "given up"}).status_code == 504
    shouting.gate.set()
    assert client.post("/translate", json=ASKED | {"q": "later"}).status_code == 200
    assert shouting.asked == [["The dog sleeps."], ["later"]]


def test_who_asks_too_often_is_told_when_to_come_back(serve: Serve) -> None:
    client, began = serve(a_minute=2, keys=["a", "b"]), time.monotonic()
    statuses = [
        client.post("/translate", json=ASKED | {"api_key": k}) for k in ("a", "a", "a", "b")
    ]
    waited = time.monotonic() - began
    assert [s.status_code for s in statuses] == [200, 200, 429, 200]
    assert max(1, 30 - waited) <= int(statuses[2].headers["retry-after"]) <= 31
    assert statuses[2].json()["error"].startswith("Slowdown:")


def test_keys_cannot_be_guessed_without_end(serve: Serve) -> None:
    client = serve(a_minute=2, keys=["secret"])
    guesses = ["one", "two", "three", "four", "secret"]  # even the right one is refused
    answers = [client.post("/translate", json=ASKED | {"api_key": key}) for key in guesses]
    assert [answer.status_code for answer in answers] == [403, 403, 429, 429, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 31


def test_a_client_is_not_many_by_many_addresses_of_its_own() -> None:
    for one, other, same in (
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::9", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("testclient", "other", False),
    ):
        assert (network(one) == network(other)) is same


def test_the_end_of_a_server_translates_what_it_has_taken(shouting: Shouting) -> None:
    shouting.gate.clear()
    answers: list[str] = []
    with listening(create_app([(LanguagePair("en", "de"), shouting)])) as address:
        api = LibreTranslateAPI(address)
        asking = threading.Thread(target=lambda: answers.append(api.translate("last", "en", "de")))
        asking.start()
        until(lambda: bool(shouting.asked))
        threading.Timer(0.3, shouting.gate.set).start()  # after the server has been asked to stop
    asking.join(30)
    assert answers == ["LAST"]
