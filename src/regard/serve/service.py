"""Code that the routes share: access, limits, and the choice of the model for a text."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from itertools import islice

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool

from regard.serve.batching import QueueFull
from regard.serve.engine import Engine, Rendering, SentenceRequest
from regard.serve.keys import Allowance, Keys
from regard.serve.languages import Detector, Guess, LanguagePair, language_name
from regard.serve.metrics import Metrics
from regard.text.passages import Passage

BUSY = "The server is busy: try again later"
RETRY_AFTER = (1, 4)
"""If a queue is full, the client is told to try again after a random delay in this range, in
seconds."""
READ_INLINE = 2000
"""The most characters that the event loop's thread works on at once. There are two kinds of work:
to split a plain text into sentences, and to count the sub-words of all sentences that a request has
for one model. If there are more characters, another thread does the work. HTML is always split in
another thread."""


@dataclass(frozen=True)
class ServerLimits:
    """The limits of a server, and whether sentences may be searched for again."""

    characters: int = 10_000
    """The most characters in all texts of one request."""
    items: int = 128
    """The most texts in one request."""
    seconds: float = 30.0
    """The most seconds to read a request, and the most seconds to wait for its translations."""
    waiting: int = 512
    """A model refuses requests while at least this many sentences are in its queue; the sentences
    of one request count as at most half of this number."""
    a_minute: int = 0
    """The requests that a client may make at once, and then per minute (`Allowance`); 0 means no
    limit. A client is an API key or, if the server has no keys, an address."""
    retry: bool = True
    """Whether sentences may be searched for again, for example if a translation looks wrong."""

    @property
    def body(self) -> int:
        """The most bytes of a body: 64 KiB, and 12 bytes for each of the `characters`.

        JSON may write one character in 12 bytes: \\uXXXX\\uXXXX.
        """
        return 12 * self.characters + 65_536


@dataclass(frozen=True)
class Job:
    """A text that is being translated, with the future result of each of its sentences."""

    engine: Engine
    passage: Passage
    futures: list[Future[Rendering]]
    until: float
    """The time at which waiting for results ends, by the clock of the event loop."""

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """A context in which to wait for a result; raises TimeoutError once `until` has passed."""
        if asyncio.get_running_loop().time() >= self.until:
            raise TimeoutError
        async with asyncio.timeout_at(self.until):
            yield

    async def renderings(self) -> AsyncIterator[Rendering]:
        """Yield the result of each sentence in order, as soon as it is ready.

        Raises TimeoutError if the time `until` comes before all results are taken, and any error
        that the translation of a sentence raised.
        """
        for future in self.futures:
            async with self.waiting():
                rendering = await asyncio.wrap_future(future)
            yield rendering


class Service:
    """The models of a server by language pair, and the server's limits and API keys."""

    def __init__(
        self,
        engines: Sequence[Engine],
        metrics: Metrics,
        limits: ServerLimits,
        keys: Keys | None = None,
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
        """The languages into which the language `source` can be translated."""
        return sorted(pair.target for pair in self.engines if pair.source == source)

    def detect(self, text: str, target: str) -> Guess:
        """The most probable language of a text.

        If several languages are equally probable, a language with a model into `target` is
        preferred. If none of them has such a model, `target` itself is preferred.
        """
        ranked = self.detector.rank(text)
        likeliest = [one for one in ranked if one.confidence == ranked[0].confidence]
        return max(
            likeliest,
            key=lambda one: (target in self.targets(one.language), one.language == target),
        )

    def admit(self, request: Request, key: str | None) -> None:
        """Raise HTTPException for too many requests, and for a missing or invalid key.

        The statuses are 429 for too many requests, 400 for a missing key and 403 for an invalid
        key. If the server has no API keys, a key is neither needed nor checked. If `key` is empty
        or None, the bearer token of the request is the key. Requests with an invalid key are
        counted by the client's address. After too many such requests, the address is refused even
        with a valid key, so that a client that guesses keys cannot see that a guess is right.
        """
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        # Starlette decodes headers as Latin-1, but clients send UTF-8.
        bearer = bearer.encode("latin-1").decode("utf-8", "replace")
        key = key or (bearer.strip() if scheme.lower() == "bearer" else None)
        client = address = network(request.client.host) if request.client else "unknown"
        known = True
        if self.keys is not None:
            if not key:
                problem = "Please contact the server operator to get an API key"
                raise HTTPException(400, problem)
            if known := self.keys.accepts(key):
                client = key
        if self._allowance is not None and (
            wait := self._allowance.wait(address) or self._allowance.take(client)
        ):
            problem = f"Slowdown: {self.limits.a_minute} per 1 minute"
            raise HTTPException(429, problem, {"Retry-After": str(int(wait) + 1)})
        if not known:
            raise HTTPException(403, "Invalid API key")

    def check_size(self, request: Request, texts: Sequence[str]) -> None:
        """Raise HTTPException for too many texts or characters; count characters for the log."""
        characters = sum(map(len, texts))
        for size, limit in ((len(texts), self.limits.items), (characters, self.limits.characters)):
            if size > limit:
                problem = f"Invalid request: request ({size}) exceeds text limit ({limit})"
                raise HTTPException(400, problem)
        request.state.characters = characters

    def engine(self, source: str, target: str) -> Engine:
        """The model for this pair; raises HTTPException if there is none."""
        pair = LanguagePair(source, target)
        for code in (pair.source, pair.target):
            if code not in self.languages:
                raise HTTPException(400, f"{code[:20]} is not supported")
        if pair not in self.engines:
            raise HTTPException(
                400,
                f"{language_name(pair.target)} ({pair.target}) is not available as a target "
                f"language from {language_name(pair.source)} ({pair.source})",
            )
        return self.engines[pair]

    @asynccontextmanager
    async def jobs(
        self,
        request: Request,
        texts: Sequence[tuple[Engine, str]],
        *,
        is_html: bool,
        ask: Callable[[int, str], SentenceRequest],
    ) -> AsyncIterator[list[Job]]:
        """A context manager that starts to translate the texts, and yields a job for each text.

        `texts` has each text with the engine that translates it. `ask(number, sentence)` makes the
        request for a sentence; the sentences of a text are numbered from 0. At the end of the
        `with` block, sentences that still wait are cancelled. Raises HTTPException 503 if a queue
        is full, and 504 if a job has waited too long.
        """
        jobs: list[Job] = []
        until = asyncio.get_running_loop().time() + self.limits.seconds
        try:
            for engine, text in texts:
                if engine.full:
                    raise QueueFull
                jobs.append(Job(engine, await _read(engine, text, is_html), [], until))
            for engine in {engine for engine, _ in texts}:
                await _submit_all([job for job in jobs if job.engine is engine], ask)
            request.state.sentences = sum(len(job.futures) for job in jobs)
            yield jobs  # without a time limit, which would interrupt a stream in the middle
        except QueueFull:
            raise busy() from None
        except TimeoutError:
            problem = f"Not translated within {self.limits.seconds:g} seconds: send less at a time"
            raise HTTPException(504, problem) from None
        finally:
            for job in jobs:
                for future in job.futures:
                    future.cancel()


async def _submit_all(jobs: Sequence[Job], ask: Callable[[int, str], SentenceRequest]) -> None:
    """Submit the sentences of one engine's jobs, in another thread if they are long in total."""
    if sum(len(sentence) for job in jobs for sentence in job.passage.sentences) <= READ_INLINE:
        _submit(jobs, ask)
    else:
        await run_in_threadpool(_submit, jobs, ask)


def _submit(jobs: Sequence[Job], ask: Callable[[int, str], SentenceRequest]) -> None:
    """Submit the sentences of one engine's jobs in one call.

    With a call for each job, the first job could fill the queue, and the next would be refused.
    """
    asked = [ask(*numbered) for job in jobs for numbered in enumerate(job.passage.sentences)]
    futures = iter(jobs[0].engine.submit(asked))
    for job in jobs:
        job.futures.extend(islice(futures, len(job.passage.sentences)))


def network(host: str) -> str:
    """The address or the network by which the requests of a client are counted.

    An IPv6 address gives the network of its first 64 bits, because one client owns the whole
    network. An IPv6 address that stands for an IPv4 address gives the IPv4 address. Any other
    `host` is returned unchanged.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    mapped = address.ipv4_mapped
    return str(mapped or ip_network((int(address), 64), strict=False))


def busy() -> HTTPException:
    """The exception for a full queue, with the delay after which the client should try again."""
    return HTTPException(503, BUSY, {"Retry-After": str(random.randint(*RETRY_AFTER))})


async def _read(engine: Engine, text: str, is_html: bool) -> Passage:
    if len(text) <= READ_INLINE and not is_html:
        return engine.read(text, is_html=False)
    return await run_in_threadpool(engine.read, text, is_html=is_html)
