"""Middleware around the routes: limits on bodies, security headers, metrics and the log."""

import asyncio
import json
import logging
import time
import traceback
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.service import Service, busy

log = logging.getLogger("regard.serve")

MOST_DISCARDED = 32 * 2**20
"""If a body is too large, it is still read up to this many bytes before it is refused: many clients
read an answer only after they have sent the whole body. If the header Content-Length announces more
bytes than this, and more than the limit of a body, the body is refused and not read."""
TRANSLATING = frozenset(["/translate", "/v1/translate", "/v1/look"])
"""Paths of the requests that put sentences into a queue."""
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers that are added to each answer, unless it has them already."""
_LAST = {"Connection": "close"}
"""A header that ends the connection. Otherwise, the server would read the rest of the body, however
long it is."""

STOPPING = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)
"""Exceptions that end a task or the server, and must be raised again. Every other unexpected
exception is answered with status 500. This includes exceptions that do not inherit from
`Exception`: extension modules may raise them."""


class Disconnected(Exception):
    """The client has closed the connection, or has taken no data for too long (`v1.STALLED`)."""


class Guard:
    """An ASGI application that wraps `app`.

    The whole body of a request is read before `app` is called. A body that is too large, too slow
    or compressed is refused, and so is a request to translate while all queues are full. Every
    request is counted in the metrics and logged. Of the exceptions that `app` raises, only those in
    STOPPING are raised again. The others are logged as errors, except Disconnected and
    HTTPException.
    """

    def __init__(self, app: ASGIApp, service: Service):
        self._app, self._service = app, service
        self._limits, self._metrics = service.limits, service.metrics
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request; pass other scopes, such as lifespan, to the inner application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        answer = _Answer(send)
        started = time.monotonic()
        try:
            await self._answer(scope, receive, answer)
        except HTTPException as refused:
            await _refusal(refused)(scope, receive, answer)
        except Disconnected:
            answer.status = 499
        except BaseException as problem:
            if isinstance(problem, STOPPING):
                raise
            scope["state"]["problem"] = problem
            if answer.status is None:
                await _refusal(HTTPException(500, "Internal error"))(scope, receive, answer)
        finally:
            self._record(scope, answer, time.monotonic() - started)

    async def _answer(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        body, replayed = await self._accepted(scope, receive), False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, answer)

    async def _accepted(self, scope: Scope, receive: Receive) -> bytes:
        """Read and return a request's body.

        Raises HTTPException if the request is refused, Disconnected if the client disconnects.
        """
        limit, headers = self._limits.body, dict(scope["headers"])
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > max(limit, MOST_DISCARDED):
            raise _too_large(limit)  # a body of this size is refused at once, and not read
        try:
            async with asyncio.timeout(self._limits.seconds):
                body = await _whole(receive, limit)
        except TimeoutError:
            raise HTTPException(408, "The request was received too slowly", _LAST) from None
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise HTTPException(415, "A compressed body is not supported")
        if scope["method"] == "POST" and scope["path"] in TRANSLATING:
            # These requests pass one by one, so that other tasks of the event loop run in between.
            async with self._turn:
                await asyncio.sleep(0)
            if self._service.busy:  # a refusal by the route would take ten times as long
                raise busy()
        return body

    def _record(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        state = scope["state"]
        problem = state.pop("problem", None)  # an exception in `state` would keep frames in memory
        path = scope["path"]
        if path not in TRANSLATING:
            # The label of the metrics is the pattern of the route, not the URL of the request,
            # because a client can choose any URL.
            path = getattr(scope.get("route"), "path", "other")
        status = answer.status or 499
        self._metrics.requests.labels(path, status).inc()
        self._metrics.seconds.labels(path).observe(seconds)
        level = logging.ERROR if problem else logging.INFO
        if not log.isEnabledFor(level):
            return
        line: dict[str, Any] = {
            "time": round(time.time(), 3),
            "path": path,
            "status": status,
            "milliseconds": round(1000 * seconds, 1),
            **{k: state[k] for k in ("pair", "characters", "sentences") if k in state},
        }
        if problem:
            line["error"] = _place(problem)
        log.log(level, json.dumps(line))


class _Answer:
    """Sends an answer with HEADERS added, and remembers its status."""

    status: int | None = None

    def __init__(self, send: Send):
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            have = {name.lower() for name, _ in message["headers"]}
            extra = [(k.encode(), v.encode()) for k, v in HEADERS.items() if k.encode() not in have]
            message = {**message, "headers": [*message["headers"], *extra]}
        await self._send(message)


async def _whole(receive: Receive, limit: int) -> bytes:
    """Read and return the body.

    Raises HTTPException 413 if the body has more than `limit` bytes, and Disconnected if the client
    disconnects.
    """
    body, size, more = bytearray(), 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        chunk = message.get("body", b"")
        size += len(chunk)
        more = message.get("more_body", False)
        if size <= limit:
            body += chunk
        elif size > MOST_DISCARDED:
            break
    if size > limit:
        raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> HTTPException:
    return HTTPException(
        413, f"The request has more than {limit} bytes: send less at a time", _LAST
    )


def _refusal(error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _place(error: BaseException) -> str:
    """The type of an error and the file and line where it was raised.

    The message of the error is left out, because the message may quote a user's text.
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"
