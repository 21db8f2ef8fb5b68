"""What is just allowed in a request is served, and what is just too large is refused."""

import asyncio
import json
from typing import Any

import pytest

from regard.serve.app import create_app
from regard.serve.languages import LanguagePair
from regard.serve.service import ServerLimits
from serve.conftest import Serve, Shouting

ASKED = {"q": "The dog sleeps.", "source": "en", "target": "de"}
LIMITS = ServerLimits(characters=20, items=3)


@pytest.mark.parametrize(
    ("q", "status"),
    [("a" * 20, 200), ("a" * 21, 400), (["a"] * 3, 200), (["a"] * 4, 400), (["a" * 7] * 3, 400)],
)
def test_texts_and_their_characters_are_counted(serve: Serve, q: Any, status: int) -> None:
    answer = serve(characters=20, items=3).post("/translate", json=ASKED | {"q": q})
    assert answer.status_code == status


@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 413)])
def test_a_body_may_have_as_many_bytes_as_the_limit(serve: Serve, more: int, status: int) -> None:
    body = json.dumps(ASKED).encode()
    body += b" " * (LIMITS.body - len(body) + more)
    answer = serve(characters=20, items=3).post(
        "/translate", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == status


def test_characters_that_json_escapes_fit_into_a_body(serve: Serve) -> None:
    body = json.dumps(ASKED | {"q": "\U0001f600" * 20_000}).encode()
    assert len(body) > 12 * 20_000
    answer = serve(characters=20_000).post(
        "/translate", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200


def test_a_body_that_is_a_little_too_large_is_read_before_it_is_refused(shouting: Shouting) -> None:
    """Many clients read an answer only after they have sent the whole body."""
    pieces, answers, size = iter([b"x" * 2**16] * 9), list[Any](), 9 * 2**16

    async def receive() -> dict[str, Any]:
        piece = next(pieces, None)
        return {"type": "http.request", "body": piece or b"", "more_body": piece is not None}

    async def send(message: Any) -> None:
        answers.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/translate", "raw_path": b"/translate",
        "query_string": b"", "headers": [(b"content-length", str(size).encode())],
        "http_version": "1.1", "scheme": "http", "client": ("test", 1), "server": ("test", 80),
    }  # fmt: skip
    app = create_app([(LanguagePair("en", "de"), shouting)], limits=LIMITS)
    asyncio.run(app(scope, receive, send))
    assert answers[0]["status"] == 413
    assert next(pieces, None) is None
