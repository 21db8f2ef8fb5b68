"""The fields of a request, sent as JSON, as a form, or in the query string."""

import asyncio
from codecs import BOM_UTF8
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request
from pydantic_core import from_json
from python_multipart.multipart import parse_options_header

from regard.serve.guard import Disconnected

_Result = TypeVar("_Result")

MOST_FIELDS = 100
CHARSETS = frozenset([b"utf-8", b"utf8", b"us-ascii", b"iso-8859-1"])
"""The charsets that a form may name. Starlette would decode a multipart form by any codec of
Python, also by punycode, whose time grows with the square of the length."""
_DAMAGED = "Invalid request: the form is damaged or not UTF-8"


async def read_fields(request: Request) -> dict[str, Any]:
    """The fields of the body if it is JSON, otherwise the fields of the form and the query string.

    If a field occurs twice in a form or a query string, its first value counts. A field of the form
    replaces the field of the query string that has the same name. Raises HTTPException 400 for a
    body that cannot be parsed, for JSON that is not an object, and for a form with a file, with
    more than MOST_FIELDS fields, or with a charset that is not in CHARSETS.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        try:
            content = from_json((await request.body()).removeprefix(BOM_UTF8))
        except ValueError as error:  # the error's text gives the line and column
            raise HTTPException(400, f"Invalid JSON format: {error}") from None
        if not isinstance(content, dict):
            raise HTTPException(400, "Invalid JSON format: not an object")
        return content
    fields: dict[str, Any] = _first(request.query_params.multi_items())
    if kind == "multipart/form-data":
        fields |= await _multipart(request)
    else:
        fields |= _form(await request.body(), _charset(request))
    return fields


def _charset(request: Request) -> str:
    """The charset that a form names, or UTF-8; raises HTTPException if it is not in CHARSETS."""
    _, options = parse_options_header(request.headers.get("content-type", ""))
    charset = options.get(b"charset", b"utf-8").lower()
    if charset not in CHARSETS:
        raise HTTPException(400, _DAMAGED)
    return charset.decode()


async def _multipart(request: Request) -> dict[str, Any]:
    charset, body = _charset(request), await request.body()
    try:
        body.decode(charset)  # Starlette would read bytes that are not UTF-8 as Latin-1
    except ValueError:
        raise HTTPException(400, _DAMAGED) from None
    most = len(body)  # no field is larger than the body, which the guard limits
    async with request.form(max_files=0, max_fields=MOST_FIELDS, max_part_size=most) as form:
        return _first(form.multi_items())


def _form(body: bytes, charset: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            body.decode(charset), keep_blank_values=True, encoding=charset, errors="strict",
            max_num_fields=MOST_FIELDS,
        )  # fmt: skip
    except ValueError:
        raise HTTPException(400, _DAMAGED) from None
    return _first(pairs)


def _first(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dictionary, with the first value of each name."""
    return dict(reversed(pairs))


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of `work`; an error of `work` is raised.

    If the client disconnects first, `work` is cancelled and Disconnected is raised.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Disconnected
        return task.result()
    finally:
        gone.cancel()
        task.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
