"""`regard serve`: models behind an HTTP server."""

import gc
import re
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.serve.languages import Pair


def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL[=en-de]...", help="Model directories, each with its pair."),
    ],
    pair: Annotated[
        str | None, typer.Option(help="The language pair of a model given without one: en-de.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 is every one.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free one.")] = 5000,
    keys: Annotated[
        Path | None, typer.Option(help="A file of API keys, one a line; without it all may ask.")
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(help="An origin whose pages may read the answers, as https://example.org."),
    ] = None,
    characters: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Characters in one request, at most.")
    ] = 10_000,
    items: Annotated[int, typer.Option(min=1, max=10_000, help="Texts of one request.")] = 128,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds for one request.")
    ] = 30.0,
    queue: Annotated[
        int, typer.Option(min=1, max=100_000, help="Sentences that may wait, for each model.")
    ] = 512,
    rate: Annotated[
        int, typer.Option(min=0, help="Requests a minute of one key or address; 0 is no limit.")
    ] = 0,
    beam: Annotated[int | None, typer.Option(min=1, help="Hypotheses kept alive.")] = None,
    precision: Annotated[str, typer.Option(help="fp32, bf16, int8 or auto.")] = "fp32",
    threads: Annotated[
        int, typer.Option(min=0, help="Cores that translate; 0 is all, but one if over two.")
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No line for each request.")] = False,
) -> None:
    """Serve models over HTTP: a page to translate on, LibreTranslate's interface, and /v1/translate
    with scores, attention and translations as they are written.

    Each request is logged as a line of JSON on standard error, without its text. SIGTERM and
    Ctrl-C finish what has been taken, then end.

    Examples:

    `regard serve runs/demo=en-de`

    `regard serve models/en-de=en-de models/de-en=de-en --host 0.0.0.0 --keys keys.txt`
    """
    from regard.decoding import settled
    from regard.errors import MissingExtra, RecipeError
    from regard.machine.devices import keep_freed_memory, set_threads

    try:
        import uvicorn

        from regard.serve.app import create_app
        from regard.serve.keys import Keys
        from regard.serve.service import Limits
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("regard"):
            raise
        raise MissingExtra("regard serve", "serve") from None
    from regard.translation import load

    for origin in cors or ():
        if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
            raise RecipeError(
                f"--cors {origin}: give an origin without a path, as https://example.org"
            )
    precision = settled(precision)
    named = [_named(model, pair) for model in models]
    allowed = None if keys is None else Keys.read(keys)
    # The loop that answers lets go of the interpreter at each send; by default it may wait 5 ms to
    # have it back from a translation.
    sys.setswitchinterval(0.0002)
    set_threads(threads or _cores())
    keep_freed_memory()
    with _listen(host, port) as listening:
        translators = []
        for path, languages in named:
            translator = load(path, precision=precision)
            if beam is not None:
                translator.recipe = translator.recipe.but(beam=beam)
            translators.append((languages, translator))
        limits = Limits(characters, items, timeout, queue, rate)
        app = create_app(translators, limits=limits, keys=allowed, origins=cors or ())
        _log(quiet)
        gc.collect()
        gc.freeze()  # what is here stays, so that no later collection stops to look at it
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,  # it would hold what a client writes into an address
            server_header=False,
            timeout_graceful_shutdown=int(timeout) + 1,
        )
        address = listening.getsockname()
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        typer.echo(f"http://{shown}:{address[1]}")
        signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again once drained
        uvicorn.Server(config).run(sockets=[listening])


def _cores() -> int:
    """Cores that translate: of more than two, one is left to the loop that answers."""
    import torch

    cores = torch.get_num_threads()
    return cores - 1 if cores > 2 else cores


def _named(argument: str, default: str | None) -> "tuple[Path, Pair]":
    """A model and its pair, of MODEL=en-de; raises RecipeError."""
    from regard.errors import RecipeError
    from regard.serve.languages import Pair

    path, _, pair = argument.rpartition("=")
    if not path or Path(argument).is_dir():
        path, pair = argument, default or ""
    if not pair:
        raise RecipeError(f"{path}: say its languages: {path}=en-de, or --pair en-de")
    return Path(path), Pair.read(pair)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, taken before any model is opened; raises RecipeError."""
    from regard.errors import RecipeError

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecipeError(
            f"--host {host} --port {port}: cannot listen there: {reason}: name another"
        ) from None


def _log(quiet: bool) -> None:
    """Lines of JSON on standard error for requests, and whatever else goes wrong."""
    import logging

    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    logging.getLogger("regard.serve").setLevel(logging.ERROR if quiet else logging.INFO)
