"""The page for the browser: files of `site`, which ask nothing of any other server."""

from collections.abc import Awaitable, Callable
from importlib import resources

from fastapi import APIRouter, Response

from regard.view.page import SCRIPT, STYLE

POLICY = (
    "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    f"frame-ancestors 'none'; script-src 'self' {SCRIPT}; style-src 'self' {STYLE}"
)
"""What the page may load; its frame, a page of attention, is bound by it and by its own rules."""
SITE = {
    "/": ("index.html", "text/html"),
    "/site.css": ("site.css", "text/css"),
    "/site.js": ("site.js", "text/javascript"),
    "/texts.js": ("texts.js", "text/javascript"),
}


def routes() -> APIRouter:
    """The routes of the site."""
    router = APIRouter(include_in_schema=False)
    for path, (name, kind) in SITE.items():
        content = (resources.files("regard.serve") / "site" / name).read_bytes()
        answer = _answering(content, f"{kind}; charset=utf-8")
        router.api_route(path, methods=["GET", "HEAD"])(answer)
    return router


def _answering(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return Response(content, headers={"Content-Security-Policy": POLICY}, media_type=kind)

    return answer
