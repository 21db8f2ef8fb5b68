"""§6.1 Machine translation: text in, text out.

Sentences are sorted by length inside a window and decoded in batches bounded by tokens; they come
back in their own order.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from regard.data.batches import Rows, one_per_row
from regard.errors import DataError
from regard.kernels.device import on_cpu
from regard.kernels.exact import WIDTH, BlockedLinear
from regard.kernels.packed import Int8Linear, PackedLinear, can_pack, refuse_int8
from regard.recipe import SearchRecipe
from regard.run.devices import choose_device, choose_dtype, has_bf16
from regard.run.model_directory import open_model
from regard.search import search
from regard.text.tokenizer import BOS, EOS, PAD, Tokenizer
from regard.transformer import Transformer

BATCH_TOKENS = 2048
"""Source tokens decoded together, padding to the longest included; fewer with a beam of more than
4."""
SMALL = 512
"""Source tokens that are too few to be divided among workers."""
WORKERS = 4
"""Batches decoded at the same time on a CPU, at most."""
WINDOW = 2048
"""Sentences read, sorted by length and translated together."""


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

    `precision` is fp32; bf16; auto: bf16 where the processor has it; or int8, for x86 processors
    with VNNI, which rounds weights and states to 8 bits. Raises RecipeError for int8 elsewhere.

    If `exact`, the translation and the score of a sentence are the same, to the last bit, whatever
    else is translated, in whatever order and by however many threads. True tries whether this
    processor's kernels allow that to sentences in a batch, which may take half a second; where they
    do not, and on a GPU, sentences are then decoded one by one. None is as True in fp32 where they
    do, and tries nothing; in bf16 and int8, where it costs more, it is False: the last bits vary.
    """
    device = choose_device()
    int8 = precision == "int8"
    if int8:
        refuse_int8(device)
    dtype = choose_dtype("fp32" if int8 else precision, device)
    if exact is None and (int8 or dtype != torch.float32):
        exact = False
    model = open_model(directory, dtype)
    transformer = model.transformer.to(device)
    if device.type == "cpu" and can_pack(dtype):
        plain = PackedLinear if exact is False else BlockedLinear
        kept = torch.bfloat16 if int8 and has_bf16(device) else dtype
        transformer.pack(Int8Linear if int8 else plain, torch.float32 if exact else kept)
    longest = model.recipe.data.max_length
    return Translator(transformer, model.tokenizer, model.recipe.search, longest, exact=exact)


class Translator:
    """A model, its tokenizer and how to search; `longest` bounds a source sentence, in pieces.

    `exact` is that of `load`, for which the model has been packed in blocks.

    For one thread at a time: on a CPU a translation divides PyTorch's threads among its batches.
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
        self.model, self.tokenizer, self.recipe, self.longest = model, tokenizer, recipe, longest
        self.exact = exact
        self._tried: dict[tuple[int, int], bool] = {}  # by beam and threads

    @property
    def one_by_one(self) -> bool:
        """Whether each sentence is decoded by itself, since only so it is exact."""
        if not self.exact:
            return False
        beam, threads = self.recipe.beam, torch.get_num_threads()
        if (beam, threads) not in self._tried:
            shares = {threads // workers for workers in range(1, _workers() + 1)}
            agree = on_cpu(self._weight) and self.model.batches_agree(beam, shares)
            self._tried[beam, threads] = agree
        return not self._tried[beam, threads]

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
    ) -> Iterator[list[Translation]]:
        """Up to `n_best` translations of each sentence, best first, in order, a window at a time.

        Errors name a sentence as `where:number`.
        """
        numbered = enumerate(sentences, start=1)
        while some := list(itertools.islice(numbered, window)):
            yield from self._window(self._encode(some, split, where), n_best)

    def measure(self, sentences: Sequence[str], *, split: bool, where: str, first: int) -> int:
        """Source tokens of these sentences, numbered from `first`; raises what `stream` would."""
        sources = self._encode(list(enumerate(sentences, first)), split, where)
        return sum(len(part) for parts in sources for part in parts)

    def _encode(
        self, numbered: Sequence[tuple[int, str]], split: bool, where: str
    ) -> list[list[list[int]]]:
        """By sentence: its parts, each a list of pieces ending in </s>; none for a blank line."""
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
        if len(self.tokenizer.encode([line])[0]) < self.longest:
            return [line]
        middle = len(line) // 2
        for boundary in (r"(?<=[.!?;:,])\s+", r"\s+", r"(?<=.)(?=.)"):
            cuts = [m for m in re.finditer(boundary, line.strip()) if m.start() > 0]
            if cuts:
                line = line.strip()
                cut = min(cuts, key=lambda m: abs(m.start() - middle))
                return self._split(line[: cut.start()]) + self._split(line[cut.end() :])
        return [line]

    def _window(
        self, sources: Sequence[Sequence[Sequence[int]]], n_best: int
    ) -> Iterator[list[Translation]]:
        parts = [part for source in sources for part in source]
        decoded = iter(self._decode(parts, n_best))
        for source in sources:
            of_parts = [next(decoded) for _ in source]
            if not of_parts:
                yield [Translation("", 0.0)]
            elif len(of_parts) == 1:
                yield of_parts[0]
            else:  # the k-th best of a split sentence is made of its parts' k-th best
                yield [
                    Translation(" ".join(t.text for t in texts), sum(t.score for t in texts))
                    for texts in zip(*of_parts, strict=False)
                ]

    def _decode(self, sources: Sequence[Sequence[int]], n_best: int) -> list[list[Translation]]:
        workers, share = _workers() if on_cpu(self._weight) else 1, None
        if self.one_by_one:
            batches = [[i] for i in range(len(sources))]
            if on_cpu(self._weight):
                workers, share = torch.get_num_threads(), 1
        else:
            slots = BATCH_TOKENS * 4 // max(4, self.recipe.beam)
            batches = list(_by_length(sources, slots, workers))

        def of(batch: list[int]) -> list[list[Translation]]:
            return self._search([sources[i] for i in batch], n_best)

        found: list[list[Translation]] = [[] for _ in sources]
        decoded = _side_by_side(of, batches, workers, share)
        for batch, translations in zip(batches, decoded, strict=True):
            for i, best in zip(batch, translations, strict=True):
                found[i] = best
        return found

    @property
    def _weight(self) -> torch.Tensor:
        return self.model.embedding.tokens.weight

    def _search(self, sources: Sequence[Sequence[int]], n_best: int) -> list[list[Translation]]:
        rows = one_per_row(sources)
        if self.exact is not False:  # no wider than the model knows positions
            width = rows.ids.shape[1]
            width = max(width, min(width + -width % WIDTH, self.model.embedding.longest))
            rows = Rows(*(F.pad(x, (0, width - x.shape[1])) for x in rows))
        rows = rows.to(self._weight.device)
        limits = (rows.segments != 0).sum(1) + self.recipe.max_extra
        limits = limits.clamp(max=self.model.embedding.longest)
        hypotheses = search(
            self.model, rows, limits, self.recipe, n_best=n_best, bos=BOS, eos=EOS, pad=PAD
        )
        texts = [self.tokenizer.decode([h.tokens for h in best]) for best in hypotheses]
        return [
            [Translation(text, h.score) for text, h in zip(some, best, strict=True)]
            for some, best in zip(texts, hypotheses, strict=True)
        ]


def _workers() -> int:
    """How many batches to decode at once: so that few cores are left over."""
    threads = torch.get_num_threads()
    return threads // -(-threads // WORKERS)


def _side_by_side(
    decode: Callable[[list[int]], list[list[Translation]]],
    batches: Sequence[list[int]],
    workers: int,
    share: int | None,
) -> Iterator[list[list[Translation]]]:
    """What `decode` gives of each batch, in order.

    Several batches are decoded at once, each with a share of the cores, an equal one if None: what
    is not a large matrix product scales better so.
    """
    workers, threads = max(1, min(workers, len(batches))), torch.get_num_threads()
    share = share or threads // workers
    if share == threads:
        yield from map(decode, batches)
        return
    pool = ThreadPoolExecutor(workers, "decode", torch.set_num_threads, (share,))
    try:
        yield from pool.map(decode, batches)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _by_length(sources: Sequence[Sequence[int]], slots: int, workers: int) -> Iterator[list[int]]:
    """Indices in batches of at most so many slots, long sentences first.

    There are as many batches for each of the workers, and they are of like size.
    """
    total = sum(map(len, sources))
    rounds = -(-total // (slots * workers))
    slots = min(slots, max(SMALL, total // max(1, rounds * workers) * 21 // 20))  # with padding
    batch: list[int] = []
    width = 0
    for i in sorted(range(len(sources)), key=lambda i: -len(sources[i])):
        width = width or len(sources[i])
        if (len(batch) + 1) * width > slots and batch:
            yield batch
            batch, width = [], len(sources[i])
        batch.append(i)
    if batch:
        yield batch
