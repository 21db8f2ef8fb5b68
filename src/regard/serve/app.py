"""The server as one ASGI application."""

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
from regard.serve import libretranslate, pages, v1
from regard.serve.engine import Engine
from regard.serve.guard import Guard
from regard.serve.keys import Keys
from regard.serve.languages import Pair
from regard.serve.metrics import Metrics
from regard.serve.reference import page
from regard.serve.service import Limits, Service
from regard.translation import Translator


def create_app(
    translators: Sequence[tuple[Pair, Translator]],
    *,
    limits: Limits | None = None,
    keys: Keys | None = None,
    origins: Sequence[str] = (),
) -> ASGIApp:
    """A server for these models; in a browser, pages of `origins` alone may read its answers.

    Raises RecipeError for two models of one pair. At the end of its lifespan what waits is
    translated, and its threads end.
    """
    limits, metrics, turn = limits or Limits(), Metrics(), threading.Lock()
    pairs = [pair for pair, _ in translators]
    if twice := next((pair for pair in pairs if pairs.count(pair) > 1), None):
        raise RecipeError(f"two models for {twice}: give each its own language pair")
    engines = [
        Engine(pair, translator, metrics, turn=turn, most_waiting=limits.waiting)
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
        docs_url=None,  # FastAPI's own pages load scripts from elsewhere
        redoc_url=None,
    )
    app.include_router(libretranslate.routes(service))
    app.include_router(v1.routes(service))
    app.include_router(pages.routes())
    _add_pages(app, metrics)
    for operations in app.openapi()["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # FastAPI's own refusal, which is never made
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_fields)
    app.add_exception_handler(Exception, _fail)
    guard = Guard(app, service)
    if not origins:
        return guard
    return CORSMiddleware(  # around the guard, so that pages can read its refusals
        guard,
        allow_origins=list(origins),
        allow_methods=["GET", "HEAD", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After"],
    )


def _add_pages(app: FastAPI, metrics: Metrics) -> None:
    @app.api_route("/metrics", methods=["GET", "HEAD"], include_in_schema=False)
    async def shown() -> Response:
        return Response(metrics.shown(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs() -> Response:
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        return HTMLResponse(page(app.openapi()), headers={"Content-Security-Policy": policy})


async def _refuse(_: Request, error: Any) -> Response:
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _fail(_: Request, error: Any) -> Response:
    """Say that it was our fault; the guard's log says where."""
    return JSONResponse({"error": "Internal error"}, 500)


async def _refuse_fields(_: Request, error: Any) -> Response:
    """Name the field and what is wrong with it, but not what was sent."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:2]) or "body"
    problem = printable(f"Invalid request: {field[:50]}: {first['msg']}")
    return JSONResponse({"error": problem}, 400)
