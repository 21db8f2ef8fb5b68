"""A server in this process: on a translator that shouts, and on a real model."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from cli.conftest import made  # noqa: F401
from regard.recipe import SearchRecipe
from regard.serve.app import create_app
from regard.serve.keys import Keys
from regard.serve.languages import Pair
from regard.serve.service import Limits
from regard.translation import Hear, Translation, Translator, load


class Shouting(Translator):
    """Says each sentence in capitals; the k-th best with so many marks after it.

    It goes on only while `gate` is open, and notes what it was asked. What is in `said` it tells
    first, of the first sentence.
    """

    def __init__(self) -> None:
        self.recipe, self.longest = SearchRecipe(), 1000
        words = SimpleNamespace(encode=lambda lines: [line.split() for line in lines])
        self.tokenizer: Any = words
        self.model: Any = SimpleNamespace(embedding=SimpleNamespace(longest=1000))
        self.gate, self.asked, self.said = threading.Event(), list[list[str]](), list[str]()
        self.gate.set()

    def stream(
        self,
        sentences: Any,
        *,
        n_best: int = 1,
        hear: Mapping[int, Hear] | None = None,
        **_: Any,
    ) -> Iterator[list[Translation]]:
        self.asked.append(list(sentences))
        for text in self.said if hear else ():
            hear[0](text)
        assert self.gate.wait(30)
        for sentence in self.asked[-1]:
            if sentence == "explode":
                raise RuntimeError("explode is a secret")
            yield [Translation(sentence.upper() + "!" * k, -float(k)) for k in range(n_best)]


@pytest.fixture
def shouting() -> Iterator[Shouting]:
    translator = Shouting()
    yield translator
    translator.gate.set()


Serve = Callable[..., TestClient]


@pytest.fixture
def serve(shouting: Shouting) -> Iterator[Serve]:
    """Start a server with these limits, keys and origins; all of them end with the test."""
    clients: list[TestClient] = []

    def start(
        keys: list[str] | None = None, origins: tuple[str, ...] = (), **limits: Any
    ) -> TestClient:
        app = create_app(
            [(Pair("en", "de"), shouting)],
            limits=Limits(**limits),
            keys=None if keys is None else Keys(keys),
            origins=origins,
        )
        client = TestClient(app)
        clients.append(client)
        return client.__enter__()

    yield start
    shouting.gate.set()
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture(scope="session")
def translator(made: Path) -> Translator:  # noqa: F811
    """A model that has learned next to nothing."""
    return load(made / "model")


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The address of a real server of this application, in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        bound.close()
