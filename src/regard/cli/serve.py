"""`regard serve`: models behind an HTTP server."""

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import BeamOption, EngineOption, PrecisionOption, refuse_engine
from regard.cli.preparing import ended_by_sigterm
from regard.errors import MissingExtra, RecipeError

if TYPE_CHECKING:
    from socket import socket

    from starlette.types import ASGIApp
    from uvicorn import Server

    from regard.serve.languages import LanguagePair
    from regard.translation import Translator

_ModelsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL[=en-de]...",
        help="Model directories, each with its language pair; + joins models to an ensemble.",
    ),
]
_PairOption = Annotated[
    str | None,
    typer.Option("--pair", help="The language pair of a model given without one: en-de."),
]
_HostOption = Annotated[
    str, typer.Option("--host", help="Address to listen at; 0.0.0.0 is every address.")
]
_PortOption = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="Port to listen at; 0 is any free one.")
]
_KeysOption = Annotated[
    Path | None,
    typer.Option("--keys", help="A file of API keys, one a line; without it anybody may ask."),
]
_CorsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cors", help="An origin whose pages may read the answers, as https://example.org."
    ),
]
_CharactersOption = Annotated[
    int,
    typer.Option("--characters", min=1, max=1_000_000, help="The most characters in one request."),
]
_ItemsOption = Annotated[
    int, typer.Option("--items", min=1, max=10_000, help="The most texts in one request.")
]
_TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        max=3600,
        help="The most seconds to receive a request, and to wait for its translations.",
    ),
]
_QueueOption = Annotated[
    int,
    typer.Option(
        "--queue",
        min=1,
        max=100_000,
        help="The most sentences that wait for a model; one request counts as at most half.",
    ),
]
_RateOption = Annotated[
    int,
    typer.Option("--rate", min=0, help="Requests a minute from one key or address; 0 is no limit."),
]
_ThreadsOption = Annotated[
    int,
    typer.Option(
        "--threads",
        min=0,
        help="Cores that translate; 0 is all, minus one if there are three or more.",
    ),
]
_RetryOption = Annotated[
    bool | None,
    typer.Option(
        "--retry/--no-retry",
        help="Search again if a translation looks wrong; by default, not with CTranslate2.",
        show_default=False,
    ),
]
_QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Do not log each request.")]


def serve(
    models: _ModelsArgument,
    pair: _PairOption = None,
    host: _HostOption = "127.0.0.1",
    port: _PortOption = 5000,
    keys: _KeysOption = None,
    cors: _CorsOption = None,
    characters: _CharactersOption = 10_000,
    items: _ItemsOption = 128,
    timeout: _TimeoutOption = 30.0,
    queue: _QueueOption = 512,
    rate: _RateOption = 0,
    beam: BeamOption = None,
    precision: PrecisionOption = "fastest",
    engine: EngineOption = None,
    threads: _ThreadsOption = 0,
    retry: _RetryOption = None,
    quiet: _QuietOption = False,
) -> None:
    """Serve models over HTTP: a page for the browser, LibreTranslate's API, and /v1/translate.

    /v1/translate also gives scores, attention and unfinished translations. By default, the server
    computes in the fastest precision: in 8 bits on an x86 CPU with AVX2. With `--precision fp32` on
    a CPU, a sentence usually has the same translation to the last bit in any batch.

    Each request is logged as a line of JSON on standard error, without its text. After SIGTERM or
    Ctrl-C, accepted requests are finished before the server ends.

    Examples:

    - `regard serve runs/demo=en-de`
    - `regard serve runs/demo=en-de --precision fp32`
    - `regard serve runs/1=en-de+runs/2=en-de`   (an ensemble)
    - `regard serve x-onnx=en-de --engine onnx`   (a model that regard export made)
    - `regard serve models/en-de=en-de models/de-en=de-en --host 0.0.0.0 --keys keys.txt`
    """
    from regard.precision import settled

    try:
        import uvicorn  # noqa: F401

        from regard.serve.app import create_app
        from regard.serve.keys import Keys
        from regard.serve.service import ServerLimits
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("regard"):
            raise
        raise MissingExtra("regard serve", "serve") from None
    _refuse_paths(cors or ())
    precision = settled(precision) if engine is None else precision
    named = [_named(model, pair) for model in models]
    _refuse_unused(pair, models)
    allowed = None if keys is None else Keys.read(keys)
    with _listen(host, port) as listening:
        with ended_by_sigterm():  # without a handler, a container's process 1 ignores SIGTERM
            translators = _open_all(named, engine, precision, beam, threads)
        again = _retries(retry, engine)
        limits = ServerLimits(characters, items, timeout, queue, rate, retry=again)
        app = create_app(translators, limits=limits, keys=allowed, origins=cors or ())
        _run(_server(app, timeout), listening, quiet)


def _retries(asked: bool | None, engine: str | None) -> bool:
    return engine != "ctranslate2" if asked is None else asked


def _refuse_paths(origins: Sequence[str]) -> None:
    for origin in origins:
        if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
            raise RecipeError(
                f"--cors {origin}: give an origin without a path, as https://example.org"
            )


def _set_up(threads: int) -> None:
    import torch

    from regard.machine.devices import keep_freed_memory, set_threads

    # The event loop releases Python's lock (the GIL) at each send. Until a translating thread gives
    # the lock back, the loop waits up to 5 ms by default, but only 0.2 ms with this setting.
    sys.setswitchinterval(0.0002)
    set_threads(threads)
    cores = torch.get_num_threads()
    if not threads and cores > 2:
        set_threads(cores - 1)  # one core is for the event loop
    keep_freed_memory()


def _open_all(
    named: "Sequence[tuple[Sequence[Path], LanguagePair]]",
    engine: str | None,
    precision: str,
    beam: int | None,
    threads: int,
) -> "list[tuple[LanguagePair, Translator]]":
    _set_up(threads)
    return [(its, _opened(paths, engine, precision, beam)) for paths, its in named]


def _opened(
    paths: Sequence[Path], engine: str | None, precision: str, beam: int | None
) -> "Translator":
    from regard.translation import load

    if engine is not None:
        refuse_engine(paths, precision, exact=None, allowed=("fastest",))
        from regard.engines.opening import load_exported

        translator: Translator = load_exported(paths[0], engine)
    else:
        translator = load(*paths, precision=precision)
        translator.prepare_few_rows()
    if beam is not None:
        translator.recipe = translator.recipe.but(beam=beam)
    translator.refuse_other_search()
    return translator


def _server(app: "ASGIApp", timeout: float) -> "Server":
    """A server that, after a signal, waits for accepted requests, at most `timeout` + 1 seconds.

    If Ctrl-C comes after the first signal, the process ends at once.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # an access log would show query strings, which may hold users' texts
        server_header=False,
        # httptools drops the body of a request that offers another protocol (`Upgrade`). If such a
        # body arrives after the head, httptools takes it for the next request.
        http="h11",
        ws="none",
        timeout_graceful_shutdown=int(timeout) + 1,
    )
    server = uvicorn.Server(config)
    setattr(server, "handle_exit", _leaving_at_once(server))  # noqa: B010
    return server


def _leaving_at_once(server: "Server") -> Callable[[int, FrameType | None], None]:
    """A signal handler that ends the process if Ctrl-C comes after the first signal.

    For all other signals, this handler calls the server's handler. For such a Ctrl-C, the server's
    handler would let the interpreter end while a thread still translates: the process would abort.
    """
    handle = server.handle_exit

    def handler(signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT and server.should_exit:
            os.write(2, b"regard: interrupted\n")
            os._exit(130)
        handle(signum, frame)

    return handler


def _run(server: "Server", listening: "socket", quiet: bool) -> None:
    """Print the address, then serve until a signal comes."""
    # This handler works until uvicorn sets its own handler. After the last answer, uvicorn restores
    # this handler and raises the signal again; this second signal must not kill the process.
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
    _log(quiet)
    gc.collect()
    gc.freeze()  # garbage collections need not look at the models, which stay until the end
    address = listening.getsockname()
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    typer.echo(f"http://{shown}:{address[1]}")
    server.run(sockets=[listening])


def _named(argument: str, default: str | None) -> "tuple[list[Path], LanguagePair]":
    """Read MODEL=en-de, or MODEL alone for the `default` pair, or several models joined by +.

    Returns the directories of the models, and their language pair. Raises RecipeError if the name
    of a model is empty, if a model has no valid language pair, or if joined models have different
    pairs. The name of an existing directory may have = in it. It may have + in it only if no models
    are joined. This function does not test whether the directories exist.
    """
    from regard.serve.languages import LanguagePair

    first, _, rest = argument.partition("=")
    is_one = Path(argument).is_dir() or (Path(first).is_dir() and "+" not in rest)
    paths, pairs = list[Path](), set[str]()
    for part in [argument] if is_one else argument.split("+"):
        path, _, pair = part.rpartition("=")
        if not path or Path(part).is_dir():
            path, pair = part, default or ""
        if path.partition("=")[0] == "":
            raise RecipeError(f"{argument!r}: a model is missing: name each, as in MODEL=en-de")
        if not pair:
            raise RecipeError(f"{path}: give its languages: {path}=en-de, or --pair en-de")
        paths.append(Path(path))
        pairs.add(pair)
    if len(pairs) > 1:
        raise RecipeError(f"{argument}: models that work together have one pair of languages")
    return paths, LanguagePair.read(pairs.pop())


def _refuse_unused(pair: str | None, models: Sequence[str]) -> None:
    """Raise RecipeError if --pair is given, but each model has a language pair of its own."""
    if pair is None:
        return
    try:
        for model in models:
            _named(model, None)
    except RecipeError:  # this model has no language pair of its own
        return
    raise RecipeError("--pair is for a model without =en-de, and each has one: leave it out")


def _listen(host: str, port: int) -> "socket":
    """A socket that listens at this address; raises RecipeError if listening is not possible."""
    from socket import AF_INET, AF_INET6, create_server

    family = AF_INET6 if ":" in host else AF_INET
    try:
        return create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecipeError(
            f"--host {host} --port {port}: cannot listen there: {reason}: name another"
        ) from None


def _log(quiet: bool) -> None:
    """Log errors, most libraries' warnings and, unless `quiet`, a line of JSON for each request.

    The log is written to standard error.
    """
    import logging

    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    logging.getLogger("regard.serve").setLevel(logging.ERROR if quiet else logging.INFO)
    for library in "uvicorn.error", "python_multipart":  # these loggers warn of clients' mistakes
        logging.getLogger(library).setLevel(logging.ERROR)
