"""Our own interface: n-best lists with scores, attention, translations as they are written."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from regard.serve.bodies import unless_left
from regard.serve.engine import Asked, Engine
from regard.serve.libretranslate import REFUSALS
from regard.serve.schema import Answer, LookQuery, Query, Sentence, answer, sentence
from regard.serve.service import Job, Service, busy
from regard.view.page import page

Made = TypeVar("Made")


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
        then `done` (an Answer, without attention), or `error` with {"error": ...}. With `partial`,
        too, `partial` with {"sentence": its number from 0, "text": ...}, which a later one may
        contradict.
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
        content = await unless_left(request, _answer(service, request, engine, query))
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
            query.alignment,
            query.attention,
        )

    return service.jobs(request, [(engine, query.text)], is_html=query.format == "html", ask=ask)


async def _made(query: Query, make: Callable[[], Made]) -> Made:
    """What `make` returns; by another thread where the event loop would wait long for it."""
    return await run_in_threadpool(make) if query.is_large else make()


async def _answer(service: Service, request: Request, engine: Engine, query: Query) -> str:
    async with _job(service, request, engine, query) as (job,):
        _refuse_several(job, query)
        found = [rendering async for rendering in job.renderings()]

        def whole() -> str:
            numbered = enumerate(found)
            sentences = [sentence(job.passage, i, rendering, query) for i, rendering in numbered]
            return answer(job.passage, sentences).model_dump_json(exclude_none=True)

        return await _made(query, whole)


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
    try:
        async with aclosing(_told(service, request, engine, query)) as told:
            async for event in told:
                yield event
                await asyncio.sleep(0)  # what is sent rarely suspends, and others wait
    except HTTPException as refusal:
        yield _event("error", {"error": refusal.detail})
    except Exception as problem:  # not raised: browsers drop what they have of a broken answer
        request.state.problem = problem
        yield _event("error", {"error": "Internal error"})


async def _told(
    service: Service, request: Request, engine: Engine, query: Query
) -> AsyncGenerator[str, None]:
    news = _News()
    hear = news.hear if query.partial else None
    async with _job(service, request, engine, query, hear) as (job,):
        _refuse_several(job, query)
        for future in job.futures:
            future.add_done_callback(news.wake)
        done: list[Sentence] = []
        while (number := len(done)) < len(job.futures):
            future = job.futures[number]
            if future.done():
                make = partial(sentence, job.passage, number, future.result(), query)
                done.append(await _made(query, make))
                yield await _made(query, partial(_event, "sentence", done[-1]))
                continue
            for about, text in await news.read():
                if about >= number:
                    written = job.passage.written(text)
                    yield _event("partial", {"sentence": about, "text": written})
        for one in done:
            one.alignment = one.attention = None  # they have been sent
        yield _event("done", answer(job.passage, done))


class _News:
    """What is written of sentences so far: of the thread that translates, for the event loop."""

    def __init__(self) -> None:
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()
        self._latest: dict[int, str] = {}

    def hear(self, number: int, text: str) -> None:
        """In any thread: so much is written of this sentence."""
        self._latest[number] = text
        self.wake()

    def wake(self, _: object = None) -> None:
        """In any thread: let `read` return."""
        if not self._event.is_set():
            self._loop.call_soon_threadsafe(self._event.set)

    async def read(self) -> list[tuple[int, str]]:
        """Wait for news, of which there may be none; sentences by their numbers."""
        await self._event.wait()
        self._event.clear()
        return [(number, self._latest.pop(number)) for number in sorted(self._latest)]


def _refuse_several(job: Job, query: Query) -> None:
    if query.attention and len(job.futures) > 1:
        problem = "Invalid request: attention: is given of one sentence at a time"
        raise HTTPException(400, problem)


def _event(kind: str, content: Answer | Sentence | dict[str, Any]) -> str:
    if isinstance(content, dict):
        text = json.dumps(content, ensure_ascii=False)
    else:
        text = content.model_dump_json(exclude_none=True)
    return f"event: {kind}\ndata: {text}\n\n"
