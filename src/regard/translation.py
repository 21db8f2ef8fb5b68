"""§6.1 Machine translation: text in, text out.

Sentences are sorted by length inside a window and decoded in batches bounded by tokens; they come
back in their own order.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.data.rows import Rows
from regard.decoding import WINDOW, Decoding, open_to_decode
from regard.errors import DataError, ModelError
from regard.recipe import SearchRecipe
from regard.search import Hypotheses, Hypothesis, search
from regard.text.tokenizer import BOS, EOS, PAD, Tokenizer
from regard.transformer import Transformer

CLAUSE_ENDS = re.compile(
    r"(?<=[.!?;:,])\s+|(?<=[。！？；：，、])(?![。！？；：，、」』”’）】》])|(?<=[。！？][」』”’）】》])"
)
BLANKS = re.compile(r"\s+")
"""Where a line that is too long is cut, the former before the latter; else in its middle."""
UNSPACED = re.compile("[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff9f]")
"""Chinese and Japanese characters and marks, beside which no blank stands."""
TOLD = 0.05
"""Seconds between two tellings of what is written so far."""

Hear = Callable[[str], object]
"""Is told what is written of a translation so far."""


@dataclass(frozen=True)
class Translation:
    """One hypothesis as text."""

    text: str
    score: float
    """log p / ((5 + length) / 6)^alpha, natural logarithm."""


def load(
    directory: str | Path, *, precision: str = "fp32", exact: bool | None = None
) -> Translator:
    """Open a model directory for translation; raises ModelError where it is missing or damaged.

    `precision` is fp32; bf16; auto: bf16 where the processor has it; or int8, for x86 processors,
    which rounds weights and states to 8 bits. Raises RecipeError for int8 elsewhere.

    If `exact`, the translation and the score of a sentence are the same, to the last bit, whatever
    else is translated, in whatever order and by however many threads. True tries whether this
    processor's kernels allow that to sentences in a batch, which may take half a second; where they
    do not, and on a GPU, sentences are then decoded one by one. None is as True in fp32 where they
    do, and tries nothing; in bf16 and int8, chosen for their speed, it is False: last bits vary.
    """
    model, exact = open_to_decode(directory, precision, exact)
    if model.recipe.task.output != "text":
        raise ModelError(
            f"{directory}: is a parser: use regard parse, or regard.parsing.load, "
            "or name a translator"
        )
    longest = model.recipe.data.max_length
    return Translator(model.transformer, model.tokenizer, model.recipe.search, longest, exact=exact)


class Translator(Decoding):
    """A model, its tokenizer and how to search; `longest` bounds a source sentence, in pieces.

    `exact` is that of `load`, for which the model has been packed in blocks.

    For one thread at a time: on a CPU a translation divides PyTorch's threads among its batches, or
    has copies of this process decode them, where there are many.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        recipe: SearchRecipe,
        longest: int,
        *,
        exact: bool | None = False,
    ):
        super().__init__(model, recipe, exact)
        self.tokenizer, self.longest = tokenizer, longest

    def translate(self, sentences: Iterable[str], *, split: bool = False) -> list[str]:
        """The best translation of each sentence; an empty one stays empty.

        Raises DataError for a sentence of more than `longest` pieces, unless `split`.
        """
        return [best[0].text for best in self.stream(sentences, split=split)]

    def stream(
        self,
        sentences: Iterable[str],
        *,
        n_best: int = 1,
        split: bool = False,
        window: int = WINDOW,
        where: str = "sentence",
        hear: Mapping[int, Hear] | None = None,
    ) -> Iterator[list[Translation]]:
        """Up to `n_best` translations of each sentence, best first, in order, a window at a time.

        `hear` has listeners by the number of a sentence, from 0. Each is told, in any thread, of
        the best hypothesis, twenty times a second while it grows; another may overtake it. Of a
        sentence that is split nothing is told. Errors name a sentence as `where:number`. Raises
        TypeError for what is no str, and for a single str, each character of which would be a
        sentence.
        """
        if isinstance(sentences, str):
            raise TypeError("one str is no list of sentences: give [text]")
        numbered = enumerate(sentences, start=1)
        while some := list(itertools.islice(numbered, window)):
            sources, first = self._encode(some, split, where), some[0][0] - 1
            whole = (i for i, source in enumerate(sources) if len(source) == 1)
            heard = {i: hear[first + i] for i in whole if first + i in hear} if hear else {}
            yield from self._window(sources, n_best, heard)

    def measure(self, sentences: Sequence[str], *, split: bool, where: str, first: int) -> int:
        """Source tokens of these sentences, numbered from `first`; raises what `stream` would."""
        sources = self._encode(list(enumerate(sentences, first)), split, where)
        return sum(len(part) for parts in sources for part in parts)

    def _encode(
        self, numbered: Sequence[tuple[int, str]], split: bool, where: str
    ) -> list[list[list[int]]]:
        """By sentence: its parts, each a list of pieces ending in </s>; none for a blank line."""
        for number, line in numbered:
            if not isinstance(line, str):
                raise TypeError(f"{where}:{number} is no str but {type(line).__name__}")
        sources: list[list[list[int]]] = []
        encoded = self.tokenizer.encode([line for _, line in numbered])
        for (number, line), pieces in zip(numbered, encoded, strict=True):
            if not line.strip():
                sources.append([])
            elif len(pieces) < self.longest:
                sources.append([[*pieces, EOS]])
            elif split:
                parts = self.tokenizer.encode(self._split(line))
                sources.append([[*part, EOS] for part in parts])
            else:
                raise DataError(
                    f"{len(pieces) + 1} pieces; this model was trained on at most {self.longest}: "
                    "split the sentence, or let --split do it",
                    where,
                    number,
                )
        return sources

    def _split(self, line: str) -> list[str]:
        """Cut where a sentence or clause ends if possible, else between words, else anywhere."""
        line = line.strip()
        if len(line) < 2 or len(self.tokenizer.encode([line])[0]) < self.longest:
            return [line]
        start = end = middle = len(line) // 2
        for boundary in CLAUSE_ENDS, BLANKS:
            cuts = (cut.span() for cut in boundary.finditer(line) if 0 < cut.start() < len(line))
            if cut := min(cuts, key=lambda span: abs(span[0] - middle), default=None):
                start, end = cut
                break
        return self._split(line[:start]) + self._split(line[end:])

    def _window(
        self,
        sources: Sequence[Sequence[Sequence[int]]],
        n_best: int,
        hear: Mapping[int, Hear],
    ) -> Iterator[list[Translation]]:
        parts = [part for source in sources for part in source]
        numbers = [number for number, source in enumerate(sources) for _ in source]
        heard = {part: hear[number] for part, number in enumerate(numbers) if number in hear}
        decoded = iter(self._decode(parts, n_best, heard))
        for source in sources:
            of_parts = [next(decoded) for _ in source]
            if not of_parts:
                yield [Translation("", 0.0)]
            elif len(of_parts) == 1:
                yield of_parts[0]
            else:  # the k-th best of a split sentence is made of its parts' k-th best
                yield [
                    Translation(joined([t.text for t in texts]), sum(t.score for t in texts))
                    for texts in zip(*of_parts, strict=False)
                ]

    def _decode(
        self, sources: Sequence[Sequence[int]], n_best: int, hear: Mapping[int, Hear]
    ) -> list[list[Translation]]:
        def found(rows: Rows, limits: Tensor, batch: list[int]) -> list[list[Hypothesis]]:
            heard = {place: hear[i] for place, i in enumerate(batch) if i in hear}
            return search(
                self.model, rows, limits, self.recipe, n_best=n_best, bos=BOS, eos=EOS, pad=PAD,
                ranker=self.model.by.most_likely, listen=_Telling(heard, self.tokenizer) if heard else None,
            )  # fmt: skip

        return [self._texts(best) for best in self.hypotheses(sources, found, here=bool(hear))]

    def _texts(self, best: Sequence[Hypothesis]) -> list[Translation]:
        texts = self.tokenizer.decode([h.tokens for h in best])
        return [Translation(text, h.score) for text, h in zip(texts, best, strict=True)]


def joined(parts: Sequence[str]) -> str:
    """Sentences, or parts of one, with a blank between them where their script has one."""
    whole = ""
    for part in filter(None, parts):
        blank = "" if not whole or UNSPACED.search(whole[-1] + part[0]) else " "
        whole += blank + part
    return whole


class _Telling:
    """A search's listener that tells of some of its sentences the best hypothesis, as text."""

    def __init__(self, hear: Mapping[int, Hear], tokenizer: Tokenizer):
        self._hear, self._tokenizer = hear, tokenizer
        self._next = time.monotonic()

    def __call__(
        self, sentences: Tensor, _: Hypotheses, live: Hypotheses, finished: Hypotheses
    ) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + TOLD
        both = Hypotheses(*(torch.cat(of, dim=1) for of in zip(finished, live, strict=True)))
        best = zip(sentences.tolist(), both.best(1).read(EOS), strict=True)
        heard = {s: found[0].tokens for s, found in best if found and s in self._hear}
        for s, text in zip(heard, self._tokenizer.decode(list(heard.values())), strict=True):
            self._hear[s](text)
