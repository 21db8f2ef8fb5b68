"""The server as an ASGI application."""

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from regard import __version__
from regard.errors import RecipeError, printable
from regard.serve.engine import Engine
from regard.serve.guard import Guard
from regard.serve.keys import Keys
from regard.serve.languages import LanguagePair
from regard.serve.libretranslate import libretranslate_routes
from regard.serve.metrics import Metrics
from regard.serve.pages import site_routes
from regard.serve.reference import reference_page
from regard.serve.service import ServerLimits, Service
from regard.serve.v1 import v1_routes
from regard.translation import Translator


def create_app(
    translators: Sequence[tuple[LanguagePair, Translator]],
    *,
    limits: ServerLimits | None = None,
    keys: Keys | None = None,
    origins: Sequence[str] = (),
) -> ASGIApp:
    """The application that serves these models, one for each language pair.

    Without `limits`, the limits are the defaults of ServerLimits; without `keys`, requests need no
    API key. In a browser, only pages from `origins` ("*" is every origin) and from the server
    itself may read the answers. At shutdown, the application translates the sentences that are
    waiting, then ends its threads. Raises RecipeError if two models have the same pair.
    """
    limits, metrics, turn = limits or ServerLimits(), Metrics(), threading.Lock()
    pairs = [pair for pair, _ in translators]
    if twice := next((pair for pair in pairs if pairs.count(pair) > 1), None):
        raise RecipeError(f"two models for {twice}: give each its own language pair")
    engines = [
        Engine(
            pair, translator, metrics, turn=turn, most_waiting=limits.waiting, retry=limits.retry
        )
        for pair, translator in translators
    ]
    service = Service(engines, metrics, limits, keys)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for engine in engines:
            await run_in_threadpool(engine.close)

    app = FastAPI(
        title="regard",
        version=__version__,
        summary="Translations by models of this server.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own pages load scripts from another server
        redoc_url=None,
    )
    app.include_router(libretranslate_routes(service))
    app.include_router(v1_routes(service))
    app.include_router(site_routes())
    _add_pages(app, metrics)
    for operations in app.openapi()["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # `_refuse_fields` answers 400 instead
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_fields)
    app.add_exception_handler(Exception, _fail)
    guard = Guard(app, service)
    if not origins:
        return guard
    return CORSMiddleware(  # it wraps the guard, so that a page can read the guard's refusals
        guard,
        allow_origins=list(origins),
        allow_methods=["GET", "HEAD", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After"],
    )


def _add_pages(app: FastAPI, metrics: Metrics) -> None:
    @app.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
    async def shown() -> Response:
        return Response(metrics.as_text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs() -> Response:
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        return HTMLResponse(
            reference_page(app.openapi()), headers={"Content-Security-Policy": policy}
        )


async def _refuse(_: Request, error: Any) -> Response:
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _fail(_: Request, error: Any) -> Response:
    """Answer 500 without details; the guard logs where the error was raised."""
    return JSONResponse({"error": "Internal error"}, 500)


async def _refuse_fields(_: Request, error: Any) -> Response:
    """Answer 400 with the problem and the field's name, but without the field's value.

    For invalid JSON, the answer has the number of the character in place of the field's name.
    """
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:2]) or "body"
    problem = f"Invalid request: {field[:50]}: {first['msg']}"
    if first["type"] == "json_invalid":
        problem = f"Invalid JSON format: {first['ctx']['error']} at character {field}"
    elif first["type"] == "model_attributes_type" and field == "body":
        problem = "Invalid request: send an object as JSON, with Content-Type: application/json"
    return JSONResponse({"error": printable(problem)}, 400)
