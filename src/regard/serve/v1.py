"""Our own interface: n-best lists with scores, what looks wrong, sentences as they are ready."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from regard.serve.bodies import unless_left
from regard.serve.engine import Engine, Rendering
from regard.serve.flaws import Flaw
from regard.serve.libretranslate import REFUSALS
from regard.serve.service import Job, Service, busy


class Query(BaseModel):
    """What is asked."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(description="Sentences, paragraphs or HTML.")]
    source: Annotated[str, Field(description="Language code.", examples=["en"])]
    target: Annotated[str, Field(description="Language code.", examples=["de"])]
    format: Literal["text", "html"] = "text"
    n_best: Annotated[
        int, Field(ge=1, le=1000, description="Translations of each sentence, up to the beam.")
    ] = 1
    stream: Annotated[
        bool, Field(description="Server-sent events: each sentence as soon as it is ready.")
    ] = False


class Hypothesis(BaseModel):
    """A translation of a sentence."""

    text: str
    score: Annotated[float, Field(description="log p over the length penalty of §6.1.")]


class Sentence(BaseModel):
    """A sentence and its translations."""

    source: str
    translations: Annotated[list[Hypothesis], Field(description="Best first.")]
    before: Annotated[str, Field(description="What stands before it in the text.")]
    flaws: Annotated[list[Flaw], Field(description="What looks wrong with the best.")]
    retried: Annotated[bool, Field(description="Whether a second, wider search was made.")]


class Answer(BaseModel):
    """The text translated, and how."""

    text: str
    sentences: list[Sentence]
    after: Annotated[str, Field(description="What stands after the last sentence.")]


def routes(service: Service) -> APIRouter:
    """The routes, on these models."""
    router = APIRouter(prefix="/v1", tags=["regard"])

    @router.post(
        "/translate",
        response_model=Answer,
        responses=REFUSALS
        | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def translate(request: Request, query: Query) -> Any:
        """Translate a text.

        With `stream`, the answer is server-sent events: `sentence` (a Sentence) for each in turn,
        then `done` (an Answer), or `error` with {"error": ...}.
        """
        service.admit(request, None)
        service.measure(request, [query.text])
        engine = service.engine(query.source, query.target)
        request.state.pair = str(engine.pair)
        if query.stream:
            if engine.full:
                raise busy()  # while there is still a status to say it with
            events = _events(service, request, engine, query)
            headers = {"X-Accel-Buffering": "no"}  # proxies should pass each event on at once
            return StreamingResponse(events, media_type="text/event-stream", headers=headers)
        return await unless_left(request, _answer(service, request, engine, query))

    return router


def _job(service: Service, request: Request, engine: Engine, query: Query) -> Any:
    return service.jobs(
        request,
        [(engine, query.text)],
        is_html=query.format == "html",
        n_best=min(query.n_best, engine.beam),
    )


async def _answer(service: Service, request: Request, engine: Engine, query: Query) -> Answer:
    async with _job(service, request, engine, query) as (job,):
        return _whole(job, [s async for s in _sentences(job, query.n_best)])


async def _events(
    service: Service, request: Request, engine: Engine, query: Query
) -> AsyncIterator[str]:
    try:
        async with _job(service, request, engine, query) as (job,):
            sentences = []
            async for sentence in _sentences(job, query.n_best):
                sentences.append(sentence)
                yield _event("sentence", sentence.model_dump())
            yield _event("done", _whole(job, sentences).model_dump())
    except HTTPException as refusal:
        yield _event("error", {"error": refusal.detail})


def _event(kind: str, content: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n"


async def _sentences(job: Job, n_best: int) -> AsyncIterator[Sentence]:
    passage, number = job.passage, 0
    async for rendering in job.renderings():
        yield _sentence(passage.sentences[number], passage.kept[number], rendering, n_best)
        number += 1


def _sentence(source: str, before: str, rendering: Rendering, n_best: int) -> Sentence:
    return Sentence(
        source=source,
        translations=[
            Hypothesis(text=t.text, score=t.score) for t in rendering.translations[:n_best]
        ],
        before=before,
        flaws=list(rendering.flaws),
        retried=rendering.retried,
    )


def _whole(job: Job, sentences: list[Sentence]) -> Answer:
    best = [sentence.translations[0].text for sentence in sentences]
    return Answer(text=job.passage.joined(best), sentences=sentences, after=job.passage.kept[-1])
