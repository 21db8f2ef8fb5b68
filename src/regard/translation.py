"""§6.1 Machine translation of text.

Sentences are read in groups, called windows. A window is sorted by length and decoded in batches of
a limited number of tokens; results come in the order of the sentences.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from regard.data.characters import characters_in
from regard.data.rows import Rows
from regard.decoding import Decoding, Searchable
from regard.encoder_decoder import EncoderDecoder
from regard.ensemble import Ensemble
from regard.errors import DataError, ModelError
from regard.hypotheses import Hypotheses, Hypothesis
from regard.precision import open_to_decode
from regard.recipe import SearchRecipe
from regard.run.model_directory import Model
from regard.search import search
from regard.text.cutting import cut_near_middle
from regard.text.plain import plainer
from regard.text.protocol import AnyTokenizer
from regard.text.scripts import join_sentences
from regard.text.tokenizer import EOS
from regard.text.words import refuse_surrogates

MOST_PIECES = 2048
"""After `accept_longer`, a sentence of at most this many pieces, </s> included, is translated
without splitting it, even if no sentence in training was as long."""
PARTIAL_SECONDS = 0.05
"""At least this many seconds pass between two reports of an unfinished translation."""

PartialListener = Callable[[str], object]
"""A function that is called with the text of a translation's best hypothesis so far."""


@dataclass(frozen=True)
class Translation:
    """A translation of a sentence as text, with its score."""

    text: str
    score: float
    """log p (natural logarithm) divided by the length penalty, ((5 + length) / 6)^alpha in §6.1; if
    the sentence was split, the sum of the parts' scores; 0 for a blank sentence."""


def load(
    directory: str | Path,
    *others: str | Path,
    precision: str = "fp32",
    exact: bool | None = None,
) -> Translator:
    """Open a model directory for translation; raises ModelError if it is missing or damaged.

    `precision` is "fp32", "bf16", "int8" (weights and states are rounded to 8 bits), "auto" (bf16
    if the device multiplies faster in bf16, else fp32) or "fastest" (int8 on an x86 processor with
    AVX2, else as "auto"). Raises RecipeError for any other precision, and for int8 on a device that
    is not an x86 processor; TrainingError as `choose_device` does; MissingExtra as `open_model`.

    If `exact` is True, a sentence gets the same translation and score, to the last bit, whatever
    else is translated, in any order and with any number of threads. In fp32 on a CPU, the results
    of compiled loops are always exact. If loops do not decode (`arithmetic.few_rows_limits`), a
    test of up to half a second finds out whether this processor computes the same bits in a batch
    as for a sentence alone. If the test fails, sentences are decoded one at a time. This is always
    so on a GPU and for some variants of the model. If `exact` is None, there is no test. Then, in
    fp32, results of loops are exact; other results are exact only if the processor would pass the
    test, and not on a GPU or for these variants of the model. In bf16 and int8, None means False.

    With `others`, all models translate together, as an `Ensemble`; the first model's recipe gives
    the settings of the search. Raises ModelError if a model is a parser, or if the models have
    different tokenizers.
    """
    models: list[Model] = []
    for path in (directory, *others):
        model, exact = open_to_decode(path, precision, exact)
        if model.recipe.task.output != "text":
            raise ModelError(
                f"{path}: is a parser: use regard parse or regard.parsing.load, "
                "or name a translator"
            )
        if models and model.tokenizer.fingerprint != models[0].tokenizer.fingerprint:
            raise ModelError(
                f"{path}: has another tokenizer than {directory}: models can translate together if "
                "they were trained on the same prepared data"
            )
        models.append(model)
    first, longest = models[0], min(model.recipe.data.max_length for model in models)
    together = Ensemble([model.network for model in models]) if others else first.network
    return Translator(
        together, first.tokenizer, first.recipe.search, longest, exact=exact,
        characters=characters_in(first.manifest),
    )  # fmt: skip


class Translator(Decoding):
    """A model or an ensemble with its tokenizer and search.

    A source may have up to `longest` pieces, </s> included. `characters`, the non-ASCII characters
    of the sources in training, is an argument of `plainer`. `exact` means the same as in `load`. If
    `exact` is True or None, `open_to_decode` must have opened `model` with this `exact`.

    Only one thread may use a translator at a time. On a CPU, the batches of a translation share
    PyTorch's threads, or are decoded by copies of this process if there are many batches.
    """

    def __init__(
        self,
        model: Searchable,
        tokenizer: AnyTokenizer,
        recipe: SearchRecipe,
        longest: int,
        *,
        exact: bool | None = False,
        characters: str | None = None,
    ):
        super().__init__(model, recipe, exact)
        self.tokenizer, self.longest = tokenizer, longest
        self.plain = plainer(tokenizer, characters)

    @property
    def network(self) -> EncoderDecoder:
        """The first model of `model.members`; raises IndexError if an engine holds the weights."""
        return self.model.members[0]

    def refuse_other_search(self) -> None:
        """Do nothing: this class can search by any settings; subclasses may raise RecipeError."""

    def accept_longer(self) -> None:
        """Accept sentences of up to `MOST_PIECES` pieces from now on.

        Sinusoids allow longer sentences than in training (§3.5), but the translations may be worse.
        Raises ModelError if the model has too few learned positions.
        """
        if self.model.longest < MOST_PIECES:
            raise ModelError(
                f"this model has learned {self.model.longest} positions and has no others: longer "
                "sentences need model.positions = sinusoidal"
            )
        self.longest = max(self.longest, MOST_PIECES)

    def translate(self, sentences: Iterable[str], *, split: bool = False) -> list[str]:
        """The best translation of each sentence; it is "" for a blank sentence.

        If `split` is True, a sentence of more than `longest` pieces is translated in parts; if not,
        DataError is raised. Raises DataError for a lone surrogate, and the errors of `stream`.
        """
        return [best[0].text for best in self.stream(sentences, split=split)]

    def stream(
        self,
        sentences: Iterable[str],
        *,
        n_best: int = 1,
        split: bool = False,
        window: int | None = None,
        where: str = "sentence",
        numbers: Iterable[int] | None = None,
        on_partial: Mapping[int, PartialListener] | None = None,
        warn: Callable[[str], object] = lambda _: None,
    ) -> Iterator[list[Translation]]:
        """Yield up to `n_best` translations of each sentence, the best first.

        `window` sentences are sorted and decoded together; None means as many as suit the device
        (`Arithmetic.window`). `on_partial` maps indices in `sentences` to listeners. A listener is
        called with the best hypothesis so far, at most twenty times per second, in any thread, but
        not for a sentence that is split. `warn` gets a message for each sentence that is split.
        Errors and warnings name a sentence as `where:number`; its number is the one in
        `numbers` or, if `numbers` is None, counted from 1. Raises DataError where `translate` does;
        TypeError if a sentence is not a str, or if `sentences` is a str; ValueError for a `window`
        below 1, or if there are fewer `numbers` than sentences; RecipeError if `n_best` is not
        between 1 and the beam; and the errors of `Decoding.hypotheses`.
        """
        window = self.window_of(window)
        begin = 0
        numbered = _numbered(itertools.count(1) if numbers is None else numbers, sentences)
        while some := list(itertools.islice(numbered, window)):
            sources = self._encode(some, split, where, warn)
            whole = (i for i, source in enumerate(sources) if len(source) == 1)
            wanted = on_partial or {}
            listeners = {i: wanted[begin + i] for i in whole if begin + i in wanted}
            yield from self._window(sources, n_best, listeners)
            begin += len(some)

    def measure(
        self,
        sentences: Sequence[str],
        *,
        split: bool,
        where: str,
        numbers: Iterable[int],
        warn: Callable[[str], object] = lambda _: None,
    ) -> int:
        """The number of source tokens in these sentences, including a </s> for each sentence.

        If `split` is True, a sentence of more than `longest` pieces is divided as in `translate`,
        each part has a </s>, and `warn` gets a message. A blank sentence has no tokens.

        Raises DataError for a sentence that `translate` refuses; TypeError if a sentence is not a
        str, or if `sentences` is a str; ValueError if there are fewer `numbers` than sentences.
        Errors and warnings name a sentence as `where:number`, with its number in `numbers`.
        """
        numbered = list(_numbered(numbers, sentences))
        sources = self._encode(numbered, split, where, warn)
        return sum(len(part) for parts in sources for part in parts)

    def _encode(
        self,
        numbered: Sequence[tuple[int, str]],
        split: bool,
        where: str,
        warn: Callable[[str], object],
    ) -> list[list[list[int]]]:
        """The ids of each sentence's parts; each part ends in </s>.

        A sentence has one part, several parts if it was split, or no part if it is blank or the
        tokenizer keeps nothing of it. Raises TypeError if a sentence is not a str, and DataError if
        it has a lone surrogate, or is too long and `split` is False.
        """
        for number, line in numbered:
            if not isinstance(line, str):
                raise TypeError(f"{where}:{number}: expected a str, not {type(line).__name__}")
            refuse_surrogates([line], where=f"{where}:{number}")
        numbered = [(number, self.plain(line)) for number, line in numbered]
        sources: list[list[list[int]]] = []
        encoded = self.tokenizer.encode([line for _, line in numbered])
        for (number, line), pieces in zip(numbered, encoded, strict=True):
            if not pieces or not line.strip():
                sources.append([])
                continue
            if len(pieces) < self.longest:
                sources.append([[*pieces, EOS]])
                continue
            problem = f"{len(pieces) + 1} pieces; this model reads at most {self.longest}"
            if split:
                warn(f"{where}:{number}: {problem}: it is translated in parts")
                code = self.tokenizer.prefix(line.strip())
                halves = self._split(line.strip().removeprefix(code), code)
                parts = self.tokenizer.encode(halves)
                sources.append([[*part, EOS] for part in parts if part])
            else:
                advice = "split it, or leave out --long refuse (in Python, give split=True)"
                raise DataError(f"{problem}: {advice}", where, number)
        return sources

    def _split(self, line: str, code: str) -> list[str]:
        """Cut a line in two, again and again, until each part is short enough; return the parts.

        Each part begins with `code`, the tokenizer's `prefix` of the line, such as `>>de<<`.
        """
        line = line.strip()
        if len(line) < 2 or len(self.tokenizer.encode([code + line])[0]) < self.longest:
            return [code + line]
        start, end = cut_near_middle(line)
        return self._split(line[:start], code) + self._split(line[end:], code)

    def _window(
        self,
        sources: Sequence[Sequence[Sequence[int]]],
        n_best: int,
        listeners: Mapping[int, PartialListener],
    ) -> Iterator[list[Translation]]:
        """Translate sentences that are given as lists of parts, as `_encode` returns them."""
        parts = [part for source in sources for part in source]
        owners = [i for i, source in enumerate(sources) for _ in source]
        by_part = {part: listeners[i] for part, i in enumerate(owners) if i in listeners}
        decoded = iter(self._decode(parts, n_best, by_part))
        for source in sources:
            of_parts = [next(decoded) for _ in source]
            if not of_parts:
                yield [Translation("", 0.0)]
            elif len(of_parts) == 1:
                yield of_parts[0]
            else:  # join the best translations of all parts, then the second best, and so on
                yield list(map(_joined, zip(*of_parts, strict=False)))

    def _decode(
        self,
        sources: Sequence[Sequence[int]],
        n_best: int,
        listeners: Mapping[int, PartialListener],
    ) -> list[list[Translation]]:
        def found(rows: Rows, limits: Tensor, batch: list[int]) -> list[list[Hypothesis]]:
            by_place = {place: listeners[i] for place, i in enumerate(batch) if i in listeners}
            reporter = _PartialReporter(by_place, self.tokenizer) if by_place else None
            return search(
                self.model, rows, limits, self.recipe, by=self.model.by, n_best=n_best,
                listen=reporter,
            )  # fmt: skip

        return [self.texts(best) for best in self.hypotheses(sources, found, here=bool(listeners))]

    def texts(self, best: Sequence[Hypothesis]) -> list[Translation]:
        """The hypotheses as text, with their scores."""
        texts = self.tokenizer.decode([h.tokens for h in best])
        return [Translation(text, h.score) for text, h in zip(texts, best, strict=True)]


def _numbered(numbers: Iterable[int], sentences: Iterable[str]) -> Iterator[tuple[int, str]]:
    if isinstance(sentences, str):
        raise TypeError("expected a list of sentences, not a str: give [text]")
    each = iter(numbers)
    for sentence in sentences:
        number = next(each, None)
        if number is None:
            raise ValueError("there are fewer numbers than sentences")
        yield number, sentence


def _joined(parts: Sequence[Translation]) -> Translation:
    """Join the translations of a sentence's parts into the translation of the sentence."""
    return Translation(join_sentences([t.text for t in parts]), sum(t.score for t in parts))


class _PartialReporter:
    """A `search.StepListener` that calls each listener with the best hypothesis so far, as text."""

    def __init__(self, listeners: Mapping[int, PartialListener], tokenizer: AnyTokenizer):
        self._listeners, self._tokenizer = listeners, tokenizer
        self._next = time.monotonic()

    def __call__(
        self, sentences: Tensor, _: Hypotheses, live: Hypotheses, finished: Hypotheses
    ) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PARTIAL_SECONDS
        best = zip(sentences.tolist(), finished.beside(live).best(1).read(EOS), strict=True)
        written = {s: found[0].tokens for s, found in best if found and s in self._listeners}
        for s, text in zip(written, self._tokenizer.decode(list(written.values())), strict=True):
            self._listeners[s](text)
