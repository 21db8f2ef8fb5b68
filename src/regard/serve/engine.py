"""A model that serves one language pair: sentences in, checked translations out."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from regard.serve.batching import Batcher
from regard.serve.flaws import Flaw, flaws
from regard.serve.languages import Pair
from regard.serve.metrics import Metrics
from regard.serve.passages import Passage, read_html, read_text
from regard.serve.retry import search_again
from regard.text.tokenizer import EOS
from regard.translate import Translation, Translator
from regard.view.look import Look, seen


@dataclass(frozen=True, eq=False)
class Asked:
    """A sentence, and what is wanted of it."""

    sentence: str
    n_best: int = 1
    hear: Callable[[str], object] | None = None
    """Is told what is written so far, in any thread."""
    attend: bool = False
    """Whether to look at the heads, too."""


@dataclass(frozen=True)
class Rendering:
    """What became of a sentence."""

    translations: list[Translation]
    """Best first, one at least."""
    flaws: tuple[Flaw, ...] = ()
    """What still looks wrong with the best."""
    retried: bool = False
    """Whether a second search was made."""
    look: Look | None = None
    """How each word of the best attends; none where it was not asked for, or the sentence is longer
    than those learned from."""


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
        return (read_html if is_html else read_text)(text, self.pair.source)

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

        def tell(number: int, text: str) -> None:
            if hear := asked[number].hear:
                hear(text)

        with self._turn:
            started = time.monotonic()
            found = self._translator.stream(
                sentences,
                n_best=max(a.n_best for a in asked),
                split=True,
                hear=tell if any(a.hear for a in asked) else None,
            )
            renderings = [Rendering(translations) for translations in found]
            self._mend(sentences, renderings)
            for i, a in enumerate(asked):
                if a.attend:
                    renderings[i] = replace(renderings[i], look=self._look(a, renderings[i]))
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

    def _look(self, asked: Asked, rendering: Rendering) -> Look | None:
        """How the best translation came from the sentence, word by word."""
        texts = [asked.sentence, rendering.translations[0].text]
        model, longest = self._translator.model, self._translator.longest
        source, written = ([*p, EOS] for p in self._translator.tokenizer.encode(texts))
        if len(source) > longest or len(written) > model.embedding.longest:
            return None
        tokenizer = self._translator.tokenizer
        return seen(model, tokenizer, asked.sentence, source, written, by_words=True)

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
