"""A model that serves one language pair: sentences in, checked translations out."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from regard.serve.batching import Batcher
from regard.serve.flaws import Flaw, flaws
from regard.serve.languages import Pair, base
from regard.serve.metrics import Metrics
from regard.serve.passages import Passage, read_html, read_text
from regard.serve.retry import search_again
from regard.text.tokenizer import EOS
from regard.translation import Hear, Translation, Translator
from regard.view.look import Look, seen

MOST_CELLS = 4_000_000
"""Weights of attention looked at for one sentence, of all heads: 16 MB while that lasts."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A sentence, and what is wanted of it."""

    sentence: str
    n_best: int = 1
    hear: Hear | None = None
    """In any thread."""
    align: bool = False
    """Whether to tell which words each word came from."""
    attend: bool = False
    """Whether to tell how every head attends."""


@dataclass(frozen=True)
class Alignment:
    """Encoder-decoder attention by words, in the mean of all heads of all layers."""

    source: tuple[str, ...]
    """Words, then </s>."""
    target: tuple[str, ...]
    weights: list[list[float]]
    """A row for each target word."""


@dataclass(frozen=True)
class Rendering:
    """What became of a sentence."""

    translations: list[Translation]
    """Best first, one at least."""
    flaws: tuple[Flaw, ...] = ()
    """What still looks wrong with the best."""
    retried: bool = False
    """Whether a second search was made."""
    alignment: Alignment | None = None
    """Of the best, if asked for; none of a sentence that is too large for it, or was split."""
    look: Look | None = None
    """How every head attends, if asked for; none where there could be no alignment."""


class Engine:
    """A translator, the queue before it, and a second search for what looks wrong.

    Engines that are given the same `turn` translate one after another, so that each has all cores.
    """

    def __init__(
        self,
        pair: Pair,
        translator: Translator,
        metrics: Metrics,
        *,
        turn: threading.Lock,
        most_waiting: int,
    ):
        self.pair, self.beam = pair, translator.recipe.beam
        self._translator, self._metrics, self._turn = translator, metrics, turn
        translator.may_be_copied = False
        self._batcher = Batcher(
            self._render,
            lambda asked: self._lengths([a.sentence for a in asked]),
            most=most_waiting,
        )
        metrics.waiting.labels(str(pair)).set_function(lambda: self._batcher.waiting)

    @property
    def full(self) -> bool:
        """Whether `submit` would refuse."""
        return self._batcher.full

    def read(self, text: str, *, is_html: bool) -> Passage:
        """The sentences of a text, by the rules of the source language."""
        return (read_html if is_html else read_text)(text, base(self.pair.source))

    def submit(self, asked: Sequence[Asked]) -> list[Future[Rendering]]:
        """Put sentences into the queue; raises QueueFull."""
        return self._batcher.submit(asked)

    def close(self) -> None:
        """Translate what waits, and end."""
        self._batcher.close()

    def _lengths(self, sentences: Sequence[str]) -> list[int]:
        """Pieces of each sentence, </s> included."""
        return [len(pieces) + 1 for pieces in self._translator.tokenizer.encode(sentences)]

    def _render(self, asked: list[Asked]) -> list[Rendering]:
        sentences = [a.sentence for a in asked]
        with self._turn:
            started = time.monotonic()
            found = self._translator.stream(
                sentences,
                n_best=max(a.n_best for a in asked),
                split=True,
                hear={i: a.hear for i, a in enumerate(asked) if a.hear},
            )
            renderings = [Rendering(translations) for translations in found]
            self._mend(sentences, renderings)
            for i, a in enumerate(asked):
                if a.align or a.attend:
                    renderings[i] = self._attended(a, renderings[i])
        pair = str(self.pair)
        self._metrics.batches.labels(pair).observe(len(sentences))
        self._metrics.batch_seconds.labels(pair).observe(time.monotonic() - started)
        for rendering in renderings:
            for flaw in rendering.flaws:
                self._metrics.flaws.labels(pair, flaw).inc()
        return renderings

    def _mend(self, sentences: Sequence[str], renderings: list[Rendering]) -> None:
        """Search a second time for what looks wrong; flag what looks wrong even then."""
        lengths = self._lengths(sentences)
        wrong = []
        for i, rendering in enumerate(renderings):
            if found := self._flaws(sentences[i], rendering.translations[0].text):
                renderings[i] = replace(rendering, flaws=found)
                if lengths[i] <= self._translator.longest:  # else it has been split
                    wrong.append(i)
        if not wrong:
            return
        again = search_again(self._translator, [sentences[i] for i in wrong])
        for i, others in zip(wrong, again, strict=True):
            first = renderings[i]
            sound = [t for t in others if not self._flaws(sentences[i], t.text)]
            if sound:
                renderings[i] = Rendering(sound[: len(first.translations)], retried=True)
            else:
                renderings[i] = replace(first, retried=True)

    def _attended(self, asked: Asked, rendering: Rendering) -> Rendering:
        """With what there is to see of how the best translation came from the sentence."""
        texts = [asked.sentence, rendering.translations[0].text]
        model, tokenizer = self._translator.model, self._translator.tokenizer
        source, written = ([*p, EOS] for p in tokenizer.encode(texts))
        cells = len(source) ** 2 + len(written) ** 2 + len(source) * len(written)
        heads = sum(layer.self_attention.heads for layer in model.encoder)
        split = len(source) > self._translator.longest  # so it was never read as a whole
        if split or cells * heads > MOST_CELLS or len(written) > model.embedding.longest:
            return rendering
        look = seen(model, tokenizer, asked.sentence, source, written, by_words=True)
        # Which layer aligns best differs between models: experiments/figures/alignment.py.
        mean = look.weights["cross"].mean((0, 1)).tolist()
        return replace(
            rendering,
            alignment=Alignment(look.source, look.written, mean) if asked.align else None,
            look=look if asked.attend else None,
        )

    def _flaws(self, source: str, output: str) -> tuple[Flaw, ...]:
        source_pieces, output_pieces = self._lengths([source, output])
        limit = min(
            source_pieces + self._translator.recipe.max_extra,
            self._translator.model.embedding.longest,
        )
        return tuple(
            flaws(
                source,
                output,
                source_pieces=source_pieces,
                output_pieces=output_pieces,
                limit=limit,
            )
        )
