"""§5.1 Learn the sub-words of a text from a random sample of its pairs."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path

from regard.data.aligned import AlignedBlock, AlignedText, TextPair
from regard.data.survey import Survey, random_keys
from regard.files.lines import read_lines
from regard.machine.workers import Workers
from regard.recipe import Recipe, TokenizerRecipe
from regard.text.cleaning import Verdict, judge_text
from regard.text.tokenizer import Tokenizer

LEARNT_PAIRS, LEARNT_CHARACTERS = 1_000_000, 200_000_000
"""The tokenizer is learned from at most about this many pairs, and at most about this many
characters. Pairs of a larger corpus are drawn at random, each with the same probability."""
LEARNT_UNSPACED = 8_000_000
"""Byte-pair encoding is learned from at most about this many characters of lines that count as
lines without blanks (`survey.LONG_WORD`). The words of such lines are mostly new, and learning
takes some 350 bytes of memory for each character of a new word. Words that occur again and again
take much less."""


def learn(
    text: AlignedText, found: Survey, recipe: Recipe, workers: Workers, sample: Path
) -> Tokenizer:
    """Learn a tokenizer from a random sample of the clean pairs that are not held out.

    `found` is the survey of `text`. The sample is written to the file `sample`, which is removed
    afterwards. Raises RecipeError for a vocabulary too small to learn, RegardError if a process
    cannot be started or was killed, OSError if `sample` cannot be written, and the errors of
    `AlignedText.each`.
    """
    sampler = _Sampler(recipe, sampled(found, recipe), frozenset(found.held_out))
    with sample.open("wb") as file:
        file.write(codecs.BOM_UTF8)  # a first line like that of a PDF is then read as text
        file.writelines(text.each("learn", sampler, workers))
    # If there are workers, a separate process learns the tokenizer. When that process ends, much
    # memory is free again. An interrupt kills that process, whereas the tokenizers library itself
    # would ignore the interrupt.
    with Workers(min(1, len(workers.pids))) as alone:
        [tokenizer] = alone.map(_Learner(recipe.tokenizer), [sample])
    sample.unlink()
    return tokenizer


def sampled(found: Survey, recipe: Recipe) -> float:
    """The probability, from 0 to 1, with which the tokenizer learns from a clean pair.

    It does not learn from pairs that are held out.
    """
    most = min(LEARNT_PAIRS, found.clean * LEARNT_CHARACTERS // max(1, found.characters))
    if recipe.tokenizer.kind == "bpe":
        most = min(most, found.clean * LEARNT_UNSPACED // max(1, found.unspaced))
    return most / max(most, found.clean, 1)


@dataclass(frozen=True)
class _Sampler:
    """Draws the pairs of a block that the tokenizer learns from, and gives them as UTF-8 lines."""

    recipe: Recipe
    share: float
    """Probability that a clean pair is drawn."""
    held_out: frozenset[TextPair]

    def __call__(self, block: AlignedBlock) -> bytes:
        keys = random_keys(self.recipe.training.seed, block.number, block.size)
        drawn = keys < self.share * 2.0**64
        return "".join(
            f"{pair[0]}\n{pair[1]}\n"
            for pair, chosen in zip(block.pairs(), drawn.tolist(), strict=True)
            if chosen
            and judge_text(*pair, self.recipe.data) is Verdict.KEPT
            and pair not in self.held_out
        ).encode()


@dataclass(frozen=True)
class _Learner:
    """Learns a tokenizer from a file of lines."""

    wanted: TokenizerRecipe

    def __call__(self, sample: Path) -> Tokenizer:
        return Tokenizer.learn(read_lines(sample), self.wanted.kind, self.wanted.vocabulary)
