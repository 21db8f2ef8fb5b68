"""§5.1 Survey a corpus: check lines, count pairs, find duplicates, draw pairs for validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.amounts import count_of
from regard.data.aligned import AlignedBlock, AlignedText, TextPair
from regard.data.repeats import NO_DIGEST, count_marks, digest, mark_repeats
from regard.errors import DataError
from regard.machine.workers import Workers
from regard.recipe import DataRecipe, Recipe
from regard.text.cleaning import Verdict, judge_text

LONG_WORD = 20
"""A line of n words counts as a line without blanks if it has over LONG_WORD x n characters."""


@dataclass(frozen=True)
class Survey:
    """The results of `survey`."""

    pairs: int
    """The number of all pairs of the corpus."""
    clean: int
    """The number of clean pairs, which `judge_text` keeps."""
    characters: int
    """The number of characters of the clean pairs."""
    unspaced: int
    """The number of characters of the clean pairs in lines without blanks (see `LONG_WORD`)."""
    held_out: list[TextPair]
    """Clean pairs that were drawn for validation, all different, in the order of the corpus."""
    repeats: Path | None
    """The file in which `mark_repeats` marked the duplicates; None if duplicates are kept."""


def survey(
    text: AlignedText,
    recipe: Recipe,
    workers: Workers,
    *,
    hold_out: bool,
    digests: Path,
    mixed: bool = False,
) -> Survey:
    """Read a whole corpus, find duplicates and, with `hold_out`, draw pairs for validation.

    As many pairs are drawn as data.held_out says, but at most a tenth of the different clean pairs.
    Each different pair has the same chance, however often it occurs. If instead each occurrence had
    the same chance, nearly all common pairs would be drawn, and none of their copies would be
    trained on. If data.deduplicate is set or pairs are drawn, the digests of all pairs are written
    to the file `digests`, for `mark_repeats`; otherwise this file is empty. If `mixed` is True,
    equal pairs of two files have different digests, so that both are kept.
    Raises the errors of `AlignedText.each`; DataError for an empty corpus or, with `hold_out`,
    fewer than ten different clean pairs; OSError if the digests or marks cannot be written.
    """
    rules = recipe.data
    wanted = rules.held_out if hold_out else 0
    # At most a tenth of the different pairs are held out, so the different pairs are counted. In
    # mixed files, digests do not count them: a pair that is in two files has two digests. So ten
    # times as many pairs as wanted are drawn from mixed files. If fewer are found, these are all
    # different pairs, and can be counted.
    most = 10 * wanted if mixed else wanted
    pairs = clean = characters = unspaced = 0
    drawn: dict[TextPair, tuple[int, int]] = {}
    with digests.open("wb") as file:
        job = _Surveyor(rules, recipe.training.seed, most, mixed)
        for found in text.each("survey", job, workers):
            pairs += found.pairs
            clean += found.clean
            characters += found.characters
            unspaced += found.unspaced
            file.write(found.digests)
            drawn = _lowest(most, drawn, found.drawn)
    if not pairs:
        raise DataError("is empty: give text, one sentence a line", text.name)
    marks = mark_repeats(digests) if rules.deduplicate or hold_out else None
    different = clean - count_marks(marks) if marks else clean
    if len(drawn) < most:  # then all different pairs are drawn
        different = len(drawn)
    if hold_out and different < 10:
        whole = count_of(pairs + text.not_drawn, "pair")
        drawn_of = f", of which data.share draws {pairs:,}" * (text.not_drawn > 0)
        raise DataError(
            f"has {whole}{drawn_of}, and {count_of(different, 'different one')} that can be used, "
            "too few to hold out a tenth for validation: give at least ten, or validation files",
            text.name,
        )
    few = sorted(list(drawn)[: min(wanted, different // 10)], key=lambda pair: drawn[pair][1])
    repeats = marks if rules.deduplicate else None
    return Survey(pairs, clean, characters, unspaced, few, repeats)


def _lowest(
    wanted: int, drawn: dict[TextPair, tuple[int, int]], more: Sequence[_Drawn]
) -> dict[TextPair, tuple[int, int]]:
    """The pairs of `drawn` and `more` with the lowest random numbers, at most `wanted` pairs.

    The pair with the lowest random number comes first. Each pair is mapped to its random number,
    and to the number of its first occurrence in the corpus.
    """
    if not more:
        return drawn
    every = dict(drawn)
    for key, number, pair in more:
        every.setdefault(pair, (key, number))
    return dict(sorted(every.items(), key=lambda item: item[1])[:wanted])


def random_keys(seed: int, first: int, count: int) -> NDArray[np.uint64]:
    """[count] Random 64-bit numbers for pair `first` and the next pairs; the seed decides them."""
    generator = np.random.PCG64(seed)
    generator.advance(first)
    return generator.random_raw(count)


_Drawn = tuple[int, int, TextPair]
"""A clean pair with a low random number: this random number, the number of the pair in the corpus,
and its text."""


@dataclass(frozen=True)
class _Found:
    """The results of surveying one block."""

    pairs: int
    clean: int
    characters: int
    unspaced: int
    drawn: list[_Drawn]
    """The clean pairs of the block whose random numbers may be among the lowest of the corpus."""
    digests: bytes
    """The digest of each pair, as uint64; `NO_DIGEST` for a pair that is not clean. Empty if
    duplicates need not be found."""


def _unspaced(line: str) -> int:
    """The length of a line if it counts as a line without blanks (see `LONG_WORD`), else 0."""
    return len(line) if len(line) > LONG_WORD * (1 + line.count(" ")) else 0


class _Surveyor:
    """Surveys blocks of a corpus.

    The random number of a clean pair follows from its text and the seed, so equal pairs have equal
    numbers. A surveyor remembers the `wanted` lowest random numbers that it has seen. A pair whose
    random number is higher than all of these is not drawn.
    """

    def __init__(self, rules: DataRecipe, seed: int, wanted: int, mixed: bool):
        self._rules, self._seed, self._wanted, self._mixed = rules, seed, wanted, mixed
        self._lowest = np.zeros(0, np.uint64)

    def __call__(self, block: AlignedBlock) -> _Found:
        pairs = block.pairs()
        clean = [judge_text(*pair, self._rules) is Verdict.KEPT for pair in pairs]
        kept = np.flatnonzero(clean)
        sides = [side for i in kept for side in pairs[i]]
        characters, unspaced = sum(map(len, sides)), sum(map(_unspaced, sides))
        drawn: list[_Drawn] = []
        if self._wanted:
            mine = np.array([digest(pairs[i], self._seed) for i in kept], np.uint64)
            self._lowest = np.unique(np.concatenate([self._lowest, mine]))[: self._wanted]
            low = np.flatnonzero(mine <= self._lowest[-1:])
            drawn = [(int(mine[i]), block.number + int(kept[i]), pairs[kept[i]]) for i in low]
        digests, file = b"", block.file if self._mixed else 0
        if self._rules.deduplicate or self._wanted:
            digests = np.array(
                [
                    digest(pair, file) if good else NO_DIGEST
                    for pair, good in zip(pairs, clean, strict=True)
                ],
                np.uint64,
            ).tobytes()
        return _Found(block.size, len(kept), characters, unspaced, drawn, digests)
