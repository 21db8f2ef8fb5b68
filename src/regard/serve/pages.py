"""The page for the browser: the files in `site`, which load nothing from other servers."""

from collections.abc import Awaitable, Callable
from importlib import resources

from fastapi import APIRouter, Response

from regard.view.page import SCRIPT_HASH, STYLE_HASH

POLICY = (
    "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    f"frame-ancestors 'none'; script-src 'self' {SCRIPT_HASH}; style-src 'self' {STYLE_HASH}"
)
"""The content security policy of the page. The page of attention weights, which is shown in a frame
of this page, inherits the policy."""
SITE = {
    "/": ("index.html", "text/html"),
    "/site.css": ("site.css", "text/css"),
    "/site.js": ("site.js", "text/javascript"),
    "/texts.js": ("texts.js", "text/javascript"),
}
"""For each path, the name of a file in `site`, and its media type."""


def site_routes() -> APIRouter:
    """The routes that serve the files of the page."""
    router = APIRouter(include_in_schema=False)
    for path, (name, kind) in SITE.items():
        content = (resources.files("regard.serve") / "site" / name).read_bytes()
        answer = _answering(content, f"{kind}; charset=utf-8")
        router.api_route(path, methods=["GET", "HEAD"])(answer)
    return router


def _answering(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    """A handler that always answers with this content."""

    async def answer() -> Response:
        return Response(content, headers={"Content-Security-Policy": POLICY}, media_type=kind)

    return answer
