"""Our own interface: n-best lists with scores, attention, translations as they are written."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from regard.serve.bodies import unless_left
from regard.serve.engine import Asked, Engine, Rendering
from regard.serve.flaws import Flaw
from regard.serve.libretranslate import REFUSALS
from regard.serve.service import Job, Service, busy
from regard.view.look import Look
from regard.view.page import page

MOST_WEIGHTS = 200_000
"""Numbers of attention in one answer, some 2 MB: 37 words and as many, by 6 layers of 8 heads."""


class LookQuery(BaseModel):
    """A sentence whose translation is looked at."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(description="One sentence.")]
    source: Annotated[str, Field(description="Language code.", examples=["en"])]
    target: Annotated[str, Field(description="Language code.", examples=["de"])]


class Query(LookQuery):
    """What is asked."""

    text: Annotated[str, Field(description="Sentences, paragraphs or HTML.")]
    format: Literal["text", "html"] = "text"
    n_best: Annotated[
        int, Field(ge=1, le=1000, description="Translations of each sentence, up to the beam.")
    ] = 1
    stream: Annotated[
        bool, Field(description="Server-sent events: each sentence as soon as it is ready.")
    ] = False
    partial: Annotated[
        bool, Field(description="In a stream: what is written of a sentence so far, too.")
    ] = False
    alignment: Annotated[
        bool, Field(description="From which words each word of the best translation came.")
    ] = False
    attention: Annotated[
        bool, Field(description="Every head's weights, for a text of one sentence.")
    ] = False


class Hypothesis(BaseModel):
    """A translation of a sentence."""

    text: str
    score: Annotated[float, Field(description="log p over the length penalty of §6.1.")]


class Alignment(BaseModel):
    """Encoder-decoder attention by words, in the mean of all heads of all layers."""

    source: Annotated[list[str], Field(description="Words, then </s>.")]
    target: Annotated[list[str], Field(description="Words, then </s>.")]
    weights: Annotated[list[list[float]], Field(description="A row for each target word; sum 1.")]


Heads = list[list[list[list[float]]]]
"""By layer, head, the word that attends, and the word attended to."""


class Attention(BaseModel):
    """What every head does, by words; the sum over the last index is 1."""

    source: list[str]
    read: Annotated[list[str], Field(description="What the decoder reads: <s>, the translation.")]
    written: Annotated[list[str], Field(description="What it writes, a place further: to </s>.")]
    encoder: Annotated[Heads, Field(description="Self-attention of source.")]
    decoder: Annotated[Heads, Field(description="Self-attention of read.")]
    cross: Annotated[Heads, Field(description="From written to source.")]


class Sentence(BaseModel):
    """A sentence and its translations."""

    source: str
    translations: Annotated[list[Hypothesis], Field(description="Best first.")]
    before: Annotated[str, Field(description="What stands before it in the text.")]
    flaws: Annotated[list[Flaw], Field(description="What looks wrong with the best.")]
    retried: Annotated[bool, Field(description="Whether a second, wider search was made.")]
    alignment: Alignment | None = None
    attention: Attention | None = None


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
        response_model_exclude_none=True,
        responses=REFUSALS
        | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
    )
    async def translate(request: Request, query: Query) -> Any:
        """Translate a text.

        With `stream`, the answer is server-sent events: `sentence` (a Sentence) for each in turn,
        then `done` (an Answer), or `error` with {"error": ...}. With `partial`, too, `partial`
        with {"sentence": its number from 0, "text": ...}, which a later one may contradict.
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
        answer = await unless_left(request, _answer(service, request, engine, query))
        if not query.attention:
            return answer
        # So much would keep the loop from all others while it is written out.
        content = await run_in_threadpool(answer.model_dump_json, exclude_none=True)
        return Response(content, media_type="application/json")

    @router.post(
        "/look",
        response_class=HTMLResponse,
        responses=REFUSALS | {200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
    )
    async def look(request: Request, query: LookQuery) -> Any:
        """How every head attends while a sentence is translated: a page for the browser."""
        service.admit(request, None)
        service.measure(request, [query.text])
        engine = service.engine(query.source, query.target)
        request.state.pair = str(engine.pair)
        asked = Query(text=query.text, source=query.source, target=query.target, attention=True)
        return HTMLResponse(await unless_left(request, _page(service, request, engine, asked)))

    return router


def _job(
    service: Service,
    request: Request,
    engine: Engine,
    query: Query,
    hear: Callable[[int, str], object] | None = None,
) -> Any:
    def ask(number: int, sentence: str) -> Asked:
        return Asked(
            sentence,
            min(query.n_best, engine.beam),
            hear and partial(hear, number),
            query.alignment or query.attention,
        )

    return service.jobs(request, [(engine, query.text)], is_html=query.format == "html", ask=ask)


async def _answer(service: Service, request: Request, engine: Engine, query: Query) -> Answer:
    async with _job(service, request, engine, query) as (job,):
        _refuse_several(job, query)
        found = [rendering async for rendering in job.renderings()]
        sentences = [_sentence(job, number, r, query) for number, r in enumerate(found)]
        return _whole(job, sentences)


async def _page(service: Service, request: Request, engine: Engine, query: Query) -> str:
    async with _job(service, request, engine, query) as (job,):
        _refuse_several(job, query)
        found = [rendering.look async for rendering in job.renderings()]
        if not found or found[0] is None:
            raise HTTPException(400, "Invalid request: text: one sentence, not too long, is shown")
        return await run_in_threadpool(page, found[0])


async def _events(
    service: Service, request: Request, engine: Engine, query: Query
) -> AsyncIterator[str]:
    said: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def tell(what: tuple[int, str] | None) -> None:
        loop.call_soon_threadsafe(said.put_nowait, what)

    hear = (lambda number, text: tell((number, text))) if query.partial else None
    try:
        async with _job(service, request, engine, query, hear) as (job,):
            _refuse_several(job, query)
            for future in job.futures:
                future.add_done_callback(lambda _: tell(None))
            sentences: list[Sentence] = []
            while (number := len(sentences)) < len(job.futures):
                if job.futures[number].done():
                    sentences.append(_sentence(job, number, job.futures[number].result(), query))
                    yield _event("sentence", sentences[-1])
                elif (partly := await said.get()) and partly[0] >= number:
                    about, text = partly
                    yield _event("partial", {"sentence": about, "text": job.passage.written(text)})
            yield _event("done", _whole(job, sentences))
    except HTTPException as refusal:
        yield _event("error", {"error": refusal.detail})
    except Exception:
        yield _event("error", {"error": "Internal error"})
        raise  # for the log


def _refuse_several(job: Job, query: Query) -> None:
    if query.attention and len(job.futures) > 1:
        problem = "Invalid request: attention: is given of one sentence at a time"
        raise HTTPException(400, problem)


def _event(kind: str, content: BaseModel | dict[str, Any]) -> str:
    if isinstance(content, BaseModel):
        content = content.model_dump(exclude_none=True)
    return f"event: {kind}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n"


def _sentence(job: Job, number: int, rendering: Rendering, query: Query) -> Sentence:
    look = rendering.look
    return Sentence(
        source=job.passage.sentences[number],
        translations=[
            Hypothesis(text=t.text, score=t.score) for t in rendering.translations[: query.n_best]
        ],
        before=job.passage.kept[number],
        flaws=list(rendering.flaws),
        retried=rendering.retried,
        alignment=_alignment(look) if look and query.alignment else None,
        attention=_attention(look) if look and query.attention else None,
    )


def _alignment(look: Look) -> Alignment:
    mean = look.weights["cross"].mean((0, 1))  # which layer aligns best differs between models
    return Alignment(
        source=list(look.source),
        target=list(look.written),
        weights=[[round(x, 4) for x in row] for row in mean.tolist()],
    )


def _attention(look: Look) -> Attention:
    if sum(weights.size for weights in look.weights.values()) > MOST_WEIGHTS:
        raise HTTPException(400, "Invalid request: text: too long to show what every head does")
    found = look.as_json()
    return Attention(
        source=found["source"],
        read=found["read"],
        written=found["written"],
        **found["attention"],
    )


def _whole(job: Job, sentences: list[Sentence]) -> Answer:
    best = [sentence.translations[0].text for sentence in sentences]
    return Answer(text=job.passage.joined(best), sentences=sentences, after=job.passage.kept[-1])
