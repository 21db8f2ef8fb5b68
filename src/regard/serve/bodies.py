"""The fields of a request, however a client has sent them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request
from pydantic_core import from_json

from regard.serve.guard import Left

Result = TypeVar("Result")

MOST_FIELDS = 100


async def read_fields(request: Request) -> dict[str, Any]:
    """Of a JSON object, or of a form and the query; raises HTTPException."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "A compressed body is not supported")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            content = from_json(await request.body())
        except ValueError as error:  # which says at which line and column
            raise HTTPException(400, f"Invalid JSON format: {error}") from None
        if not isinstance(content, dict):
            raise HTTPException(400, "Invalid JSON format: not an object")
        return content
    fields: dict[str, Any] = dict(request.query_params)
    if kind == "multipart/form-data":
        async with request.form(max_files=0, max_fields=MOST_FIELDS) as form:
            fields |= form
    else:
        fields |= _form(await request.body())
    return fields


def _form(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError:
        raise HTTPException(400, "Invalid request: the form is damaged or not UTF-8") from None
    return dict(reversed(pairs))  # of a field that comes twice, the first


async def unless_left(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of the work, which is cancelled when the client goes; raises Left."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Left
        return task.result()
    finally:
        gone.cancel()
        task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
