"""§5.1 The last reading of a corpus: judge, encode and write its pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.amounts import count_of
from regard.data.aligned import AlignedBlock, AlignedText, TextPair
from regard.data.pairs import EncodedSentences, SideWriter
from regard.data.repeats import read_marks
from regard.machine.workers import Workers
from regard.recipe import DataRecipe
from regard.text.cleaning import Verdict, judge_length, judge_text
from regard.text.protocol import AnyTokenizer

MANY = 0.1
"""`SplitCounts.remark` tells of dropped examples if they are at least this fraction of the examples
that data.share draws."""
Ids = tuple[NDArray[np.uint32], NDArray[np.uint32]]
"""The ids of a source sentence and of its target, both without </s>."""


@dataclass(frozen=True)
class SplitCounts:
    """How many pairs of a split were read and kept, and how many were dropped for which reason."""

    read: int
    kept: int
    empty: int
    too_long: int
    ratio: int
    duplicates: int
    held_out: int
    """The number of pairs that were drawn for validation, or that equal a drawn pair."""
    source_tokens: int
    """The number of source tokens, </s> included; a pair counts as often as it is written."""
    target_tokens: int
    """The number of target tokens, </s> included; a pair counts as often as it is written."""
    validated: int = 0
    """The number of kept training pairs that equal a pair of the given validation files."""
    not_drawn: int = 0
    """The number of pairs that data.share does not draw; they are not judged in any other way."""

    def remark(self, example: str) -> str:
        """A sentence about the dropped examples, for the user.

        Returns "" if no example was dropped, or if the dropped examples are less than the fraction
        MANY of the examples that data.share draws. Examples that were held out for validation do
        not count as dropped. `example` is the word for an example: "pair", or "tree" for a parser.
        """
        why = {
            "empty": self.empty,
            "too long": self.too_long,
            "of very different lengths": self.ratio,
            "duplicates": self.duplicates,
        }
        dropped, drawn = sum(why.values()), self.read - self.not_drawn
        if dropped < max(1, MANY * drawn):
            return ""
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in why.items() if count)
        of = f"{dropped:,} of {count_of(drawn, example)}"
        return f"left out: {of} ({reasons}); trained on: {self.kept:,}"

    @classmethod
    def of(cls, fates: Counter[Verdict], source: SideWriter, target: SideWriter) -> SplitCounts:
        """The counts of a split that has been written; `validated` and `not_drawn` are 0."""
        outcome = {verdict.value: fates[verdict] for verdict in Verdict}
        tokens = {"source_tokens": source.tokens, "target_tokens": target.tokens}
        return cls(read=fates.total(), **outcome, **tokens)


class Encoded(NamedTuple):
    """The kept pairs of a block as ids, and how many pairs of the block got each verdict."""

    source: EncodedSentences
    target: EncodedSentences
    fates: Counter[Verdict]
    times: int = 1
    """How often the pairs are written."""
    validated: int = 0
    """How many of the pairs equal a pair of the given validation files."""


class EncodeAll:
    """A `job` for the function `encode` that keeps every pair."""

    def __init__(self, tokenizer: AnyTokenizer):
        self._tokenizer = tokenizer

    def __call__(self, block: AlignedBlock) -> Encoded:
        """Encode a block; raises DataError for a line that is binary or not UTF-8."""
        pairs = encoded(block.pairs(), self._tokenizer)
        return _as_encoded(pairs, Counter({Verdict.KEPT: len(pairs)}), self._tokenizer)


class EncodeForTraining:
    """A `job` for the function `encode` that drops the pairs that must not be trained on.

    It drops the pairs in `held_out`, duplicates, and pairs that break the `rules`. Pairs in
    `valid`, the given validation pairs, are counted, but kept. `repeats` is a file in which
    `mark_repeats` marked the duplicates; with None, duplicates are kept. `mix` has a number for
    each source file of the corpus: how often its pairs are written. If `mix` is empty, all pairs
    are written once.
    """

    def __init__(
        self,
        tokenizer: AnyTokenizer,
        rules: DataRecipe,
        held_out: Collection[TextPair],
        repeats: Path | None,
        mix: Sequence[int],
        valid: Collection[TextPair] = (),
    ):
        self._valid = frozenset(valid)
        self._tokenizer, self._rules, self._mix = tokenizer, rules, mix
        self._held_out, self._repeats = frozenset(held_out), repeats

    def __call__(self, block: AlignedBlock) -> Encoded:
        """Encode a block; raises DataError for a line that is binary or not UTF-8."""
        judged = self._judged(block)
        fates: Counter[Verdict] = Counter(
            verdict for verdict, _ in judged if verdict is not Verdict.KEPT
        )
        clean = [pair for verdict, pair in judged if verdict is Verdict.KEPT]
        weighed = [
            (judge_length(len(source), len(target), self._rules), (source, target))
            for source, target in encoded(clean, self._tokenizer)
        ]
        fates.update(verdict for verdict, _ in weighed)
        kept = [ids for verdict, ids in weighed if verdict is Verdict.KEPT]
        times = self._mix[block.file] if self._mix else 1
        validated = sum(
            pair in self._valid
            for pair, (verdict, _) in zip(clean, weighed, strict=True)
            if verdict is Verdict.KEPT
        )
        return _as_encoded(kept, fates, self._tokenizer)._replace(times=times, validated=validated)

    def _judged(self, block: AlignedBlock) -> list[tuple[Verdict, TextPair]]:
        """Each pair of a block with its verdict, which is found before the pair is encoded."""
        if self._repeats is None:
            repeated = [False] * block.size
        else:
            repeated = read_marks(self._repeats, block.number, block.size).tolist()
        return [
            (self._judge(pair, repeat), pair)
            for pair, repeat in zip(block.pairs(), repeated, strict=True)
        ]

    def _judge(self, pair: TextPair, repeat: bool) -> Verdict:
        verdict = judge_text(*pair, self._rules)
        if verdict is not Verdict.KEPT:
            return verdict
        if pair in self._held_out:
            return Verdict.HELD_OUT
        return Verdict.DUPLICATE if repeat else Verdict.KEPT


def encode(
    stem: Path,
    text: AlignedText,
    job: Callable[[AlignedBlock], Encoded],
    vocabularies: tuple[int, int],
    workers: Workers,
) -> SplitCounts:
    """Write a split: all pairs of `text` that `job` keeps. The workers run `job` on each block.

    `stem` is the common part of the split's paths, for instance out/train; `vocabularies` are the
    sizes of the source's and the target's vocabulary, in entries. Returns the counts of the split.
    Raises the errors of `AlignedText.each`, and OSError if the split cannot be written.
    """
    fates: Counter[Verdict] = Counter()
    validated = 0
    with (
        closing(SideWriter(stem.with_name(f"{stem.name}.source"), vocabularies[0])) as sources,
        closing(SideWriter(stem.with_name(f"{stem.name}.target"), vocabularies[1])) as targets,
    ):
        for block in text.each("encode", job, workers):
            for _ in range(block.times):
                sources.append(block.source)
                targets.append(block.target)
            fates.update(block.fates)
            validated += block.validated
    counts = SplitCounts.of(fates, sources, targets)
    read = counts.read + text.not_drawn
    return replace(counts, read=read, validated=validated, not_drawn=text.not_drawn)


def encoded(pairs: Sequence[TextPair], tokenizer: AnyTokenizer) -> list[Ids]:
    """The ids of both sides of each pair, without </s>."""
    sources = tokenizer.encode_arrays([source for source, _ in pairs])
    targets = tokenizer.encode_arrays([target for _, target in pairs], "target")
    return list(zip(sources, targets, strict=True))


def _as_encoded(pairs: list[Ids], fates: Counter[Verdict], tokenizer: AnyTokenizer) -> Encoded:
    source, target = (
        EncodedSentences.of([pair[i] for pair in pairs], size)
        for i, size in enumerate((tokenizer.source_size, tokenizer.size))
    )
    return Encoded(source, target, fates)
