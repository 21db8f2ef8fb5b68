"""The routes of `/v1`: n-best lists with scores, attention, and streams of translations."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, TypeVar, cast

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Message, Send

from regard.serve.bodies import unless_disconnected
from regard.serve.engine import Engine, SentenceRequest
from regard.serve.guard import STOPPING, Disconnected
from regard.serve.libretranslate import REFUSALS
from regard.serve.schema import (
    Answer,
    LookQuery,
    Query,
    TranslatedSentence,
    answer,
    translated_sentence,
)
from regard.serve.service import Job, Service, busy
from regard.view.page import attention_page

STALLED = 60.0
"""A client that takes no event of a stream for this many seconds counts as disconnected."""
_Made = TypeVar("_Made")


def v1_routes(service: Service) -> APIRouter:
    """The routes of `/v1` for the models of this service."""
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

        With `stream`, the answer is a sequence of server-sent events. Each sentence, in order, has
        an event `sentence` (a Sentence). Then comes an event `done` (an Answer, without alignment
        and attention). After an error, the last event is `error` with {"error": ...} instead. With
        `partial`, there are also events `partial` with {"sentence": ..., "text": ...}: the number
        of a sentence, from 0, and its unfinished translation. A later event may replace this text.
        """
        service.admit(request, None)
        service.check_size(request, [query.text])
        engine = _engine(service, request, query)
        if query.stream:
            if engine.full:
                raise busy()  # after the stream has started, the status cannot be changed
            events = _events(service, request, engine, query)
            headers = {"X-Accel-Buffering": "no"}  # this header tells nginx not to buffer events
            return _Stream(events, media_type="text/event-stream", headers=headers)
        content = await unless_disconnected(request, _answer(service, request, engine, query))
        return Response(content, media_type="application/json")

    @router.post(
        "/look",
        response_class=HTMLResponse,
        responses=REFUSALS | {200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
    )
    async def look(request: Request, query: LookQuery) -> Any:
        """Translate a sentence; return an HTML page with the attention weights of all heads.

        In an ensemble, these are the heads of the first model.
        """
        service.admit(request, None)
        service.check_size(request, [query.text])
        whole = Query(text=query.text, source=query.source, target=query.target, attention=True)
        engine = _engine(service, request, whole)
        return HTMLResponse(
            await unless_disconnected(request, _page(service, request, engine, whole))
        )

    return router


def _engine(service: Service, request: Request, query: Query) -> Engine:
    engine = service.engine(query.source, query.target)
    request.state.pair = str(engine.pair)
    if query.attention and not engine.attends:
        raise HTTPException(400, "Invalid request: attention: this model shows no attention")
    return engine


@asynccontextmanager
async def _job(
    service: Service,
    request: Request,
    engine: Engine,
    query: Query,
    on_partial: Callable[[int, str], object] | None = None,
) -> AsyncIterator[Job]:
    """A context manager that starts to translate a text, and yields its job.

    `on_partial` is called with the number of a sentence, from 0, and its unfinished translation.
    Raises HTTPException as `Service.jobs` does, and if `query` asks for attention although the
    text has several sentences.
    """

    def ask(number: int, sentence: str) -> SentenceRequest:
        return SentenceRequest(
            sentence,
            min(query.n_best, engine.beam),
            on_partial and partial(on_partial, number),
            query.alignment,
            query.attention,
        )

    texts, is_html = [(engine, query.text)], query.format == "html"
    async with service.jobs(request, texts, is_html=is_html, ask=ask) as (job,):
        if query.attention and len(job.futures) > 1:
            raise HTTPException(400, "Invalid request: text: give one sentence for its attention")
        yield job


async def _made(query: Query, make: Callable[[], _Made]) -> _Made:
    """Call `make`, in another thread if the answer is large; return the result."""
    return await run_in_threadpool(make) if query.is_large else make()


async def _answer(service: Service, request: Request, engine: Engine, query: Query) -> str:
    async with _job(service, request, engine, query) as job:
        renderings = [rendering async for rendering in job.renderings()]

        def whole() -> str:
            done: list[TranslatedSentence] = []
            for found in renderings:
                done.append(translated_sentence(job.passage, done, found, query))
            return answer(job.passage, done).model_dump_json(exclude_none=True)

        return await _made(query, whole)


async def _page(service: Service, request: Request, engine: Engine, query: Query) -> str:
    async with _job(service, request, engine, query) as job:
        found = [rendering.look async for rendering in job.renderings()]
        if not found or found[0] is None:
            raise HTTPException(
                400, "Invalid request: text: give one sentence that is not too long"
            )
        return await run_in_threadpool(attention_page, found[0], found[0].kind(None))


class _Stream(StreamingResponse):
    """An answer sent event by event; its generator is closed even if the client has gone."""

    async def stream_response(self, send: Send) -> None:
        """Send the events of the generator, then close it.

        Raises Disconnected if the client takes nothing for STALLED seconds.
        """

        async def taken(message: Message) -> None:
            try:
                async with asyncio.timeout(STALLED):
                    await send(message)
            except TimeoutError:
                raise Disconnected from None

        async with aclosing(cast(AsyncGenerator[str, None], self.body_iterator)):
            await super().stream_response(taken)


async def _events(
    service: Service, request: Request, engine: Engine, query: Query
) -> AsyncGenerator[str, None]:
    try:
        async with aclosing(_steps(service, request, engine, query)) as steps:
            async for event in steps:
                yield event
                # Let other requests run now, because sending an event rarely lets them run.
                await asyncio.sleep(0)
    except HTTPException as refusal:
        yield _event("error", {"error": refusal.detail})
    except BaseException as problem:
        if isinstance(problem, (*STOPPING, GeneratorExit)):
            raise
        # The error is sent and not raised, because a browser discards an incomplete answer.
        request.state.problem = problem
        yield _event("error", {"error": "Internal error"})


async def _steps(
    service: Service, request: Request, engine: Engine, query: Query
) -> AsyncGenerator[str, None]:
    progress = _Progress()
    on_partial = progress.put if query.partial else None
    async with _job(service, request, engine, query, on_partial) as job:
        for future in job.futures:
            future.add_done_callback(progress.wake)
        done: list[TranslatedSentence] = []
        while (number := len(done)) < len(job.futures):
            future = job.futures[number]
            if future.done():
                make = partial(translated_sentence, job.passage, done, future.result(), query)
                done.append(await _made(query, make))
                yield await _made(query, partial(_event, "sentence", done[-1]))
                continue
            async with job.waiting():
                news = await progress.read()
            for about, text in news:
                if about >= number:
                    written = job.passage.written(text)
                    yield _event("partial", {"sentence": about, "text": written})
        for one in done:
            # The alignments and the attention were sent in the events `sentence`.
            one.alignment = one.attention = None
        yield _event("done", answer(job.passage, done))


class _Progress:
    """Passes unfinished translations from the translating thread to the event loop."""

    def __init__(self) -> None:
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()
        self._latest: dict[int, str] = {}

    def put(self, number: int, text: str) -> None:
        """Store the unfinished translation of a sentence; any thread may call this method."""
        self._latest[number] = text
        self.wake()

    def wake(self, _: object = None) -> None:
        """Let `read` return; any thread may call this method."""
        if not self._event.is_set():
            self._loop.call_soon_threadsafe(self._event.set)

    async def read(self) -> list[tuple[int, str]]:
        """Wait for `wake`; return the new texts, if any, each with the number of its sentence."""
        await self._event.wait()
        self._event.clear()
        return [(number, self._latest.pop(number)) for number in sorted(self._latest)]


def _event(kind: str, content: Answer | TranslatedSentence | dict[str, Any]) -> str:
    if isinstance(content, dict):
        text = json.dumps(content, ensure_ascii=False)
    else:
        text = content.model_dump_json(exclude_none=True)
    return f"event: {kind}\ndata: {text}\n\n"
