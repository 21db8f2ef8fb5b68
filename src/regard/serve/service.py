"""What the routes share: who may ask for how much, and the way of a text through the models."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool

from regard.serve.batching import QueueFull
from regard.serve.engine import Asked, Engine, Rendering
from regard.serve.keys import Allowance, Keys
from regard.serve.languages import Detected, Detector, Pair, name
from regard.serve.metrics import Metrics
from regard.serve.passages import Passage

BUSY = "The server is busy: try again later"
RETRY_AFTER = (1, 4)
"""Seconds after which a client that was refused may ask again; not all at the same time."""
READ_INLINE = 2000
"""Characters of plain text that are cut into sentences without asking another thread to."""


@dataclass(frozen=True)
class Limits:
    """What a server takes upon itself."""

    characters: int = 10_000
    """In the texts of one request, together."""
    items: int = 128
    """Texts in one request."""
    seconds: float = 30.0
    """For reading a request, and again for answering it."""
    waiting: int = 512
    """Sentences in the queue of a model; a request is refused while there are so many."""
    a_minute: int = 0
    """Requests of one key, or of one address, in a minute; 0 is no limit."""

    @property
    def body(self) -> int:
        """Bytes of the largest body: every character may be written as \\uXXXX\\uXXXX."""
        return 12 * self.characters + 65_536


@dataclass(frozen=True)
class Job:
    """A text on its way: its sentences, and what will be found of them."""

    engine: Engine
    passage: Passage
    futures: Sequence[Future[Rendering]]

    async def renderings(self) -> AsyncIterator[Rendering]:
        """In the order of the sentences, each as soon as it is there."""
        for future in self.futures:
            yield await asyncio.wrap_future(future)


class Service:
    """The models of a server by language pair, and its rules."""

    def __init__(
        self, engines: Sequence[Engine], metrics: Metrics, limits: Limits, keys: Keys | None = None
    ):
        self.engines = {engine.pair: engine for engine in engines}
        self.metrics, self.limits, self.keys = metrics, limits, keys
        self.languages = sorted({c for pair in self.engines for c in (pair.source, pair.target)})
        self.detector = Detector(self.languages)
        self._allowance = Allowance(limits.a_minute) if limits.a_minute else None

    @property
    def busy(self) -> bool:
        """Whether every queue is full."""
        return all(engine.full for engine in self.engines.values())

    def targets(self, source: str) -> list[str]:
        """Into which languages texts in this one can be translated."""
        return sorted(pair.target for pair in self.engines if pair.source == source)

    def told(self, text: str, target: str) -> Detected:
        """The language of a text; of those equally likely, one that leads to the target."""
        ranked = self.detector.rank(text)
        likeliest = [one for one in ranked if one.confidence == ranked[0].confidence]
        return max(
            likeliest,
            key=lambda one: (target in self.targets(one.language), one.language == target),
        )

    def admit(self, request: Request, key: str | None) -> None:
        """Refuse who has no right, or asks too often; raises HTTPException.

        Refused keys count for the address. One that has had too many is refused with any key:
        else its guesses would go on, told by the answer to the right one.
        """
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        # Headers are read as the former, and written as the latter.
        bearer = bearer.encode("latin-1").decode("utf-8", "replace")
        key = key or (bearer.strip() if scheme.lower() == "bearer" else None)
        client = address = request.client.host if request.client else "unknown"
        known = True
        if self.keys is not None:
            if not key:
                problem = "Please contact the server operator to get an API key"
                raise HTTPException(400, problem)
            if known := self.keys.know(key):
                client = key
        if self._allowance is not None and (
            wait := self._allowance.wait(address) or self._allowance.take(client)
        ):
            problem = f"Slowdown: {self.limits.a_minute} per 1 minute"
            raise HTTPException(429, problem, {"Retry-After": str(int(wait) + 1)})
        if not known:
            raise HTTPException(403, "Invalid API key")

    def measure(self, request: Request, texts: Sequence[str]) -> None:
        """Refuse too much at once; raises HTTPException."""
        characters = sum(map(len, texts))
        for size, limit in ((len(texts), self.limits.items), (characters, self.limits.characters)):
            if size > limit:
                problem = f"Invalid request: request ({size}) exceeds text limit ({limit})"
                raise HTTPException(400, problem)
        request.state.characters = characters

    def engine(self, source: str, target: str) -> Engine:
        """The model of this pair; raises HTTPException."""
        pair = Pair(source, target)
        for code in (pair.source, pair.target):
            if code not in self.languages:
                raise HTTPException(400, f"{code[:20]} is not supported")
        if pair not in self.engines:
            raise HTTPException(
                400,
                f"{name(pair.target)} ({pair.target}) is not available as a target language from "
                f"{name(pair.source)} ({pair.source})",
            )
        return self.engines[pair]

    @asynccontextmanager
    async def jobs(
        self,
        request: Request,
        texts: Sequence[tuple[Engine, str]],
        *,
        is_html: bool,
        ask: Callable[[int, str], Asked],
    ) -> AsyncIterator[list[Job]]:
        """Within the block, the texts are on their way; what is left at its end is given up.

        `ask` says what is wanted of a sentence, given its number in its text, from 0. Raises
        HTTPException: 503 where the queue is full, 504 where the block takes too long.
        """
        jobs: list[Job] = []
        try:
            for engine, text in texts:
                if engine.full:
                    raise QueueFull
                passage = await _read(engine, text, is_html)
                jobs.append(Job(engine, passage, _submit(engine, passage, ask)))
            request.state.sentences = sum(len(job.futures) for job in jobs)
            async with asyncio.timeout(self.limits.seconds):
                yield jobs
        except QueueFull:
            raise busy() from None
        except TimeoutError:
            problem = f"Not translated within {self.limits.seconds:g} seconds: send less at a time"
            raise HTTPException(504, problem) from None
        finally:
            for job in jobs:
                for future in job.futures:
                    future.cancel()


def _submit(
    engine: Engine, passage: Passage, ask: Callable[[int, str], Asked]
) -> list[Future[Rendering]]:
    return engine.submit([ask(*numbered) for numbered in enumerate(passage.sentences)])


def busy() -> HTTPException:
    """The refusal where a queue is full, which says when to come back."""
    return HTTPException(503, BUSY, {"Retry-After": str(random.randint(*RETRY_AFTER))})


async def _read(engine: Engine, text: str, is_html: bool) -> Passage:
    if len(text) <= READ_INLINE and not is_html:
        return engine.read(text, is_html=False)
    return await run_in_threadpool(engine.read, text, is_html=is_html)
