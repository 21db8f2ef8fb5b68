"""A server in this process, with a fake translator that shouts or with a real model."""

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
from regard.serve.languages import LanguagePair
from regard.serve.service import ServerLimits
from regard.translation import PartialListener, Translation, Translator, load


class Shouting(Translator):
    """A fake translator that writes in capitals; the k-th best ends in k exclamation marks.

    If the word "twice" is in the sentence, each translation is there twice.
    It works only while `gate` is set, and records its input in `asked`. The texts in `said` are
    first reported as unfinished translations of the first sentence.
    """

    def __init__(self) -> None:
        self.recipe, self.longest, self.plain = SearchRecipe(), 1000, str
        self.tokenizer: Any = SimpleNamespace(
            encode=lambda lines, side="source": [[*range(len(line.split()))] for line in lines],
            prefix=lambda line: ">>de<<" * line.startswith(">>de<<"),
        )
        self.model: Any = SimpleNamespace(longest=1000, members=())
        self.gate, self.asked, self.said = threading.Event(), list[list[str]](), list[str]()
        self.gate.set()

    def stream(
        self,
        sentences: Any,
        *,
        n_best: int = 1,
        on_partial: Mapping[int, PartialListener] | None = None,
        **_: Any,
    ) -> Iterator[list[Translation]]:
        self.asked.append(list(sentences))
        for text in self.said if on_partial else ():
            on_partial[0](text)
        assert self.gate.wait(30)
        for sentence in self.asked[-1]:
            if sentence == "explode":
                raise RuntimeError("explode is a secret")
            marks = ["!" * (k // 2 if "twice" in sentence else k) for k in range(n_best)]
            yield [Translation(sentence.upper() + m, -float(k)) for k, m in enumerate(marks)]


@pytest.fixture
def shouting() -> Iterator[Shouting]:
    translator = Shouting()
    yield translator
    translator.gate.set()


Serve = Callable[..., TestClient]


@pytest.fixture
def serve(shouting: Shouting) -> Iterator[Serve]:
    """A function that starts a server with these limits, keys and origins, until the test ends."""
    clients: list[TestClient] = []

    def start(
        keys: list[str] | None = None, origins: tuple[str, ...] = (), **limits: Any
    ) -> TestClient:
        app = create_app(
            [(LanguagePair("en", "de"), shouting)],
            limits=ServerLimits(**limits),
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
    """A model after very little training."""
    return load(made / "model")


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Run a real server of this application in a thread; yields its address."""
    server = uvicorn.Server(uvicorn.Config(app, http="h11", log_config=None, access_log=False))
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        bound.close()
