"""The model of one language pair: it translates sentences and checks the translations."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from regard.machine.memory import give_back_memory
from regard.mending.mend import Mended, mended
from regard.serve.batching import Batcher
from regard.serve.languages import LanguagePair, base
from regard.serve.metrics import Metrics
from regard.text.passages import Passage, read_passage
from regard.text.tokenizer import EOS
from regard.translation import PartialListener, Translator
from regard.view.look import Look, seen

MOST_CELLS = 4_000_000
"""The most attention weights, between sub-words, that all heads of all layers may have for a
sentence. If there are more, the attention weights and the word alignment are left out. This many
weights take 16 MB in fp32."""


@dataclass(frozen=True, eq=False)
class SentenceRequest:
    """A sentence to translate, and the results to return for it."""

    sentence: str
    n_best: int = 1
    """How many translations are wanted. The result may have more if another sentence of the batch
    wants more, or fewer if the search finds fewer."""
    on_partial: PartialListener | None = None
    """A function that is called, in any thread, with the unfinished translation. There is no
    call if the sentence is split because it is too long for the model, or if CTranslate2 or ONNX
    Runtime computes the model."""
    align: bool = False
    """Whether to return the word alignment."""
    attend: bool = False
    """Whether to return the attention weights of every head."""


@dataclass(frozen=True)
class WordAlignment:
    """The encoder-decoder attention between words, averaged over all heads of all layers.

    In an ensemble, this is the attention of the first model.
    """

    source: tuple[str, ...]
    """The source words, then </s>."""
    target: tuple[str, ...]
    """The target words, then </s>."""
    weights: list[list[float]]
    """One row for each item of `target`, one column for each item of `source`; a row sums to 1."""


@dataclass(frozen=True)
class Rendering(Mended):
    """The result for one sentence: its translations, and what else was requested."""

    alignment: WordAlignment | None = None
    """The word alignment of the best translation. None if it is not requested, if the sentence or
    its translation is too long, or if the model shows no attention (`Engine.attends`)."""
    look: Look | None = None
    """The attention weights of every head; in an ensemble, those of the first model. None if they
    are not requested, if the sentence or its translation is too long, or if the model shows no
    attention."""


class Engine:
    """A translator with a queue of sentences.

    The queue refuses sentences while it has `most_waiting` or more, as `Batcher` counts them. With
    `retry`, a sentence is searched for again if its translation looks wrong, or if the sentence has
    many capitals that do not suit the vocabulary (`mended`), unless the text for this search is too
    long for the model. Engines that share the lock `turn` translate one after another, so that each
    can use all cores.
    """

    def __init__(
        self,
        pair: LanguagePair,
        translator: Translator,
        metrics: Metrics,
        *,
        turn: threading.Lock,
        most_waiting: int,
        retry: bool = True,
    ):
        self.pair, self.beam, self._retry = pair, translator.recipe.beam, retry
        self._translator, self._metrics, self._turn = translator, metrics, turn
        translator.may_be_copied = False
        self._batcher = Batcher(
            self._render,
            self._lengths,
            most=most_waiting,
            rest=give_back_memory,
        )
        metrics.waiting.labels(str(pair)).set_function(lambda: self._batcher.waiting)

    @property
    def full(self) -> bool:
        """Whether `submit` would raise QueueFull."""
        return self._batcher.full

    @property
    def alive(self) -> bool:
        """Whether the thread that translates runs."""
        return self._batcher.alive

    @property
    def attends(self) -> bool:
        """Whether the model shows attention: whether there are attention weights to return.

        A model of the family "dilated" has none. A program that computes a model in place of
        regard, such as CTranslate2, does not return attention weights.
        """
        return bool(self._translator.model.members and self._translator.network.attentions())

    def read(self, text: str, *, is_html: bool) -> Passage:
        """Split a text into sentences with `read_passage`, by the source language's rules."""
        tokenizer = self._translator.tokenizer
        return read_passage(text, base(self.pair.source), tokenizer, is_html=is_html)

    def submit(self, requests: Sequence[SentenceRequest]) -> list[Future[Rendering]]:
        """Add sentences to the queue; return a future for each.

        Raises QueueFull if `full` is True. If an error is raised while a batch is translated, the
        futures of the batch raise this error.
        """
        return self._batcher.submit(requests)

    def close(self) -> None:
        """Translate the sentences in the queue, and end the thread."""
        self._batcher.close()

    def _lengths(self, requests: Sequence[SentenceRequest]) -> list[int]:
        """The number of pieces of each request's sentence, </s> included."""
        sentences = [self._translator.plain(request.sentence) for request in requests]
        return [len(pieces) + 1 for pieces in self._translator.tokenizer.encode(sentences)]

    def _render(self, requests: list[SentenceRequest]) -> list[Rendering]:
        sentences = [request.sentence for request in requests]
        with self._turn:
            started = time.monotonic()
            found = self._translator.stream(
                sentences,
                n_best=max(request.n_best for request in requests),
                split=True,
                on_partial={i: r.on_partial for i, r in enumerate(requests) if r.on_partial},
            )
            checked = mended(self._translator, sentences, list(found), retry=self._retry)
            renderings = [Rendering(**vars(it)) for it in checked]
            for i, request in enumerate(requests):
                if request.align or request.attend:
                    renderings[i] = self._attended(request, renderings[i])
        pair = str(self.pair)
        self._metrics.batches.labels(pair).observe(len(sentences))
        self._metrics.batch_seconds.labels(pair).observe(time.monotonic() - started)
        for rendering in renderings:
            for flaw in rendering.flaws:
                self._metrics.flaws.labels(pair, flaw).inc()
        return renderings

    def _attended(self, request: SentenceRequest, rendering: Rendering) -> Rendering:
        """Return `rendering` with the requested alignment and weights of the best translation.

        Both are left out if the model shows no attention, if there are more weights than
        MOST_CELLS, or if the sentence or its translation is too long for the model.
        """
        if not self.attends:
            return rendering
        texts = [request.sentence, rendering.translations[0].text]
        model, tokenizer = self._translator.network, self._translator.tokenizer
        [read], [made] = tokenizer.encode(texts[:1]), tokenizer.encode(texts[1:], "target")
        source, written = [*read, EOS], [*made, EOS]
        rows = {"encoder": source, "decoder": written, "cross": written}
        columns = {"encoder": source, "decoder": written, "cross": source}
        cells = sum(
            len(rows[kind]) * len(columns[kind]) * sum(module.heads for module in modules)
            for kind, modules in model.attentions().items()
        )
        split = len(source) > self._translator.longest  # the model never read the whole sentence
        if cells > MOST_CELLS or split or len(written) > model.longest:
            return rendering
        look = seen(model, tokenizer, request.sentence, source, written, by_words=True)
        # The mean over all layers is used, because the best layer differs from model to model
        # (experiments/figures/alignment.py).
        mean = look.weights["cross"].mean((0, 1)).tolist()
        return replace(
            rendering,
            alignment=WordAlignment(look.source, look.written, mean) if request.align else None,
            look=look if request.attend else None,
        )
