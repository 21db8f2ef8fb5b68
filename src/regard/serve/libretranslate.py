"""The main routes of LibreTranslate's interface, so that clients of LibreTranslate work unchanged.

https://libretranslate.com/docs describes the paths, fields and answers of the routes. Routes that
translate files or take suggestions are missing.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from regard.serve.bodies import read_fields, unless_disconnected
from regard.serve.engine import Engine, SentenceRequest
from regard.serve.languages import Guess, language_name, usual
from regard.serve.service import Job, Service
from regard.text.passages import readable


class Refusal(BaseModel):
    """The answer to a request that is refused."""

    error: str


class TranslateQuery(BaseModel):
    """A request to /translate, as JSON or as a form."""

    model_config = ConfigDict(title="Query")

    q: Annotated[str | list[str], Field(description="Text, or a list of texts.", min_length=1)]
    source: Annotated[str, Field(description='Language code, or "auto".')]
    target: Annotated[str, Field(description="Language code.")]
    format: Literal["text", "html"] | None = "text"
    alternatives: Annotated[
        int | None, Field(ge=0, description="Number of alternative translations.")
    ] = 0
    api_key: str | None = ""


class DetectQuery(BaseModel):
    """A request to /detect, as JSON or as a form."""

    q: Annotated[str, Field(min_length=1)]
    api_key: str | None = ""


class Language(BaseModel):
    """A language, and the languages that it can be translated into."""

    code: str
    name: str
    targets: list[str]


class Translated(BaseModel):
    """The answer of /translate: if q was a list, each field is a list with an item for each text.

    `alternatives` and `detectedLanguage` are None, and left out, if they were not requested.
    """

    translatedText: str | list[str]  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Guess | list[Guess] | None = None  # noqa: N815


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal} for status in (400, 403, 408, 413, 415, 429, 503, 504)
}


def _sent_as(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI description of a body that may be JSON or a form."""
    schema = model.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": True, "content": {k: {"schema": schema} for k in kinds}}}


def libretranslate_routes(service: Service) -> APIRouter:
    """LibreTranslate's routes for the models of this service."""
    router = APIRouter(tags=["LibreTranslate"])

    @router.post(
        "/translate",
        response_model_exclude_none=True,
        responses=REFUSALS,
        openapi_extra=_sent_as(TranslateQuery),
    )
    async def translate(request: Request) -> Translated:
        """Translate a text, or a list of texts."""
        fields = await read_fields(request)
        service.admit(request, _text(fields, "api_key", ""))
        return await unless_disconnected(request, _translate(service, request, fields))

    @router.post("/detect", responses=REFUSALS, openapi_extra=_sent_as(DetectQuery))
    async def detect(request: Request) -> list[Guess]:
        """Detect which of the server's languages a text is in."""
        fields = await read_fields(request)
        service.admit(request, _text(fields, "api_key", ""))
        text = _text(fields, "q")
        service.check_size(request, [text])
        return service.detector.rank(text)

    @router.head("/languages", include_in_schema=False)
    @router.get("/languages")
    async def languages() -> list[Language]:
        """List the languages, each with the languages that it can be translated into."""
        return [
            Language(code=code, name=language_name(code), targets=service.targets(code))
            for code in service.languages
        ]

    @router.head("/health", include_in_schema=False)
    @router.get("/health")
    async def health() -> dict[str, str]:
        """Report that the server is running; status 503 if a model no longer translates."""
        if not all(engine.alive for engine in service.engines.values()):
            raise HTTPException(503, "A model no longer translates: restart the server")
        return {"status": "ok"}

    @router.head("/frontend/settings", include_in_schema=False)
    @router.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """Return the settings for a web page that uses this server."""
        return _settings(service)

    return router


def _settings(service: Service) -> dict[str, Any]:
    first = next(iter(service.engines))
    return {
        "charLimit": service.limits.characters,
        "frontendTimeout": 500,
        "apiKeys": service.keys is not None,
        "keyRequired": service.keys is not None,
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "language": {
            "source": {"code": first.source, "name": language_name(first.source)},
            "target": {"code": first.target, "name": language_name(first.target)},
        },
    }


async def _translate(service: Service, request: Request, fields: dict[str, Any]) -> Translated:
    texts, as_list = _texts(fields)
    source, target = usual(_text(fields, "source")), usual(_text(fields, "target"))
    form = _text(fields, "format", "text") or "text"
    if form not in ("text", "html"):
        raise HTTPException(400, f"{form[:20]} format is not supported")
    is_html, wanted = form == "html", _count(fields.get("alternatives"))
    service.check_size(request, texts)
    guesses = await _guesses(service, texts, target, is_html) if source == "auto" else []
    sources = [g.language for g in guesses] or [source] * len(texts)
    jobs = [
        (service.engine(code, target), text)
        for code, text in zip(sources, texts, strict=True)
        if code != target or target not in service.languages  # `engine` refuses an unknown target
    ]
    made = iter(await _made(service, request, jobs, wanted, is_html))
    # A text that is already in the target language has no job.
    found = [
        [text] if code == target else next(made) for code, text in zip(sources, texts, strict=True)
    ]
    return _answer(found, wanted, guesses, as_list)


async def _guesses(service: Service, texts: list[str], target: str, is_html: bool) -> list[Guess]:
    """The most probable language of each text; HTML is judged by the text between its tags."""

    def guess(text: str) -> Guess:
        return service.detect(readable(text) if is_html else text, target)

    return await run_in_threadpool(lambda: list(map(guess, texts)))


async def _made(
    service: Service, request: Request, jobs: list[tuple[Engine, str]], wanted: int, is_html: bool
) -> list[list[str]]:
    """For each job, a list: the translation of its text, then up to `wanted` alternatives."""
    if jobs:
        request.state.pair = str(jobs[0][0].pair)
    n_best = 1 + min([wanted, *(engine.beam - 1 for engine, _ in jobs)])
    async with service.jobs(
        request, jobs, is_html=is_html, ask=lambda _, s: SentenceRequest(s, n_best)
    ) as running:
        return [await _versions(job, n_best) for job in running]


def _answer(found: list[list[str]], wanted: int, guesses: list[Guess], as_list: bool) -> Translated:
    """The answer to a request.

    For each text, `found` has its translation, followed by its alternatives. If `as_list` is True,
    each field of the answer is a list with an item for each text. If not, there is only one text,
    and each field is the item of this text.
    """
    fields: dict[str, list[Any]] = {"translatedText": [versions[0] for versions in found]}
    if wanted:
        fields["alternatives"] = [versions[1:] for versions in found]
    if guesses:
        fields["detectedLanguage"] = guesses
    return Translated(**fields if as_list else {key: each[0] for key, each in fields.items()})


async def _versions(job: Job, n_best: int) -> list[str]:
    """Up to `n_best` translations of a text; the k-th joins the k-th translation of each sentence.

    Translations of a sentence that differ only in their sub-words count as one. A sentence with
    fewer than k translations contributes its last translation.
    """
    best = [
        list(dict.fromkeys(t.text for t in rendering.translations))
        async for rendering in job.renderings()
    ]
    count = min(n_best, max(map(len, best), default=1))
    versions = [[texts[min(k, len(texts) - 1)] for texts in best] for k in range(count)]
    return [job.passage.joined(version) for version in versions]


def _text(fields: dict[str, Any], key: str, default: str | None = None) -> str:
    """The text of a field; `default` if the field is missing or null.

    Raises HTTPException if the value is not text, or if there is no default and the field is
    missing, null or empty.
    """
    value = fields.get(key)
    value = default if value is None else value
    if value is None or (value == "" and default is None):
        raise HTTPException(400, f"Invalid request: missing {key} parameter")
    if not isinstance(value, str):
        raise HTTPException(400, f"Invalid request: {key} parameter is not text")
    return value


def _texts(fields: dict[str, Any]) -> tuple[list[str], bool]:
    """The texts of q, and whether q is a list.

    Raises HTTPException if q is missing or empty, or is neither a text nor a list of texts.
    """
    q = fields.get("q")
    if not isinstance(q, list):
        return [_text(fields, "q")], False
    if not q:
        raise HTTPException(400, "Invalid request: missing q parameter")
    if not all(isinstance(text, str) for text in q):
        raise HTTPException(400, "Invalid request: q parameter is not text or a list of texts")
    return q, True


def _count(value: Any) -> int:
    """`int(value)`, clipped to 0 ... 1000; 0 for None or an empty value.

    Raises HTTPException if `int` refuses the value, for example the text "2.5".
    """
    try:
        return max(0, min(int(value or 0), 1000))
    except (TypeError, ValueError, OverflowError):
        problem = "Invalid request: alternatives parameter is not a number"
        raise HTTPException(400, problem) from None
