"""A parallel text, and what suits it: vocabulary, row length, BLEU's tokenizer."""

import math
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from regard.data.aligned import AlignedText, Progress
from regard.data.pairs import Pairs, prepared_manifest
from regard.data.repeats import digest
from regard.errors import DataError
from regard.files.lines import read_lines
from regard.recipe import BleuTokenizer, DataRecipe, Recipe
from regard.text.cleaning import Verdict, judge_text
from regard.text.opening import open_tokenizer
from regard.text.protocol import AnyTokenizer
from regard.text.scripts import suited_tokenizer

SAMPLED = 2000
"""A `ParallelText` keeps the lengths of at most this many pairs, the first ones of the text."""
RULES = DataRecipe()
"""The rules by which pairs are dropped before they are counted."""
COUNTED = 1_000_000
"""If a text has at most this many different pairs, all are counted, otherwise only a sample."""


@cache
def rule_of_times() -> dict[str, Any]:
    """The constants of rule.toml."""
    return tomllib.loads(files("regard.budget").joinpath("rule.toml").read_text(encoding="utf-8"))


class ParallelText(NamedTuple):
    """The size of a parallel text, without repeated pairs and pairs that `judge_text` drops."""

    pairs: int
    characters: int
    """Number of characters in all targets."""
    lengths: tuple[tuple[int, int], ...]
    """The numbers of characters in source and target, for each of the first SAMPLED pairs."""
    tokenizer: AnyTokenizer | None = None
    """A tokenizer that is used unchanged; None if one is to be learned from the text."""
    bleu_tokenizer: BleuTokenizer = "13a"
    """The tokenizer of sacreBLEU that suits the script of the targets."""
    most: float = math.inf
    """A vocabulary that is learned has at most about this many entries (see `vocabulary`)."""

    @classmethod
    def of(
        cls,
        sources: Sequence[Path],
        targets: Sequence[Path],
        tokenizer: Path | None = None,
        progress: Callable[[Progress], object] = lambda _: None,
    ) -> "ParallelText":
        """Measure the text in source files and target files that correspond line by line.

        `progress` is called while the files are read. Raises DataError as `AlignedText` and
        `AlignedText.counted` do, and if all sources or all targets are empty; the errors of
        `open_tokenizer` if the tokenizer cannot be opened.
        """
        known = None if tokenizer is None else open_tokenizer(tokenizer)
        counted = _Counted()
        for source, target in AlignedText(sources, targets, progress).counted():
            counted.add(source, target)
        for path, characters in zip((sources[0], targets[0]), counted.read, strict=True):
            if not characters:
                raise DataError("has no text: give text to learn from", path)
        lengths, words = tuple(counted.first or [(1, 1)]), suited_tokenizer(counted.targets)
        return cls(counted.pairs, counted.characters, lengths, known, words)

    @classmethod
    def of_data(cls, data: Path) -> "ParallelText":
        """Estimate the size of the text from which this data was prepared.

        A pair that `--mix` repeats counts once. Raises DataError if the data is missing or damaged,
        and the errors of `open_tokenizer` if its tokenizer cannot be opened.
        """
        pairs = Pairs.open(data, "train")
        known, kept = open_tokenizer(data), prepared_manifest(data)["counts"]["train"]["kept"]
        each = cls(kept, 0, (), known).characters_per_token()
        both = np.stack([pairs.source_lengths, pairs.target_lengths], 1) - 1
        some = (both[:SAMPLED] * each).astype(int).tolist()
        lengths = tuple((s, t) for s, t in some)
        words = suited_tokenizer(read_lines(data / "valid.target.txt"))
        characters = both[:, 1].sum() * each * kept / len(pairs)
        return cls(kept, int(characters), lengths, known, words)

    def drawn(self, share: float) -> "ParallelText":
        """The expected size of this share of the text, if its pairs are drawn at random."""
        pairs, characters = round(share * self.pairs), round(share * self.characters)
        return self._replace(pairs=pairs, characters=characters)

    def enough(self, tokens: float) -> float:
        """The share of the text that is enough for a run that learns from `tokens` target tokens.

        The result is 1 if more than half of the text is needed.
        """
        rule = rule_of_times()["share"]
        share = max(rule["margin"] * tokens / self.tokens, rule["pairs"] / max(1, self.pairs))
        return float(f"{share:.2g}") if share <= 0.5 else 1.0

    def passes(self, tokens: float) -> float:
        """How many passes over the text count for dropout, label smoothing and cooldown.

        Many passes over few tokens count more, because a model learns a small text by heart after
        fewer passes. `tokens` is the number of target tokens that the model learns from.
        """
        few, epochs = rule_of_times()["few"], tokens / self.tokens
        return epochs if epochs <= few["epochs"] else epochs * max(1.0, few["tokens"] / self.tokens)

    def vocabulary(self) -> int:
        """The size of the target's vocabulary: the tokenizer's, or a size that suits the text."""
        if self.tokenizer is not None:
            return self.tokenizer.size
        rule = rule_of_times()["vocabulary"]
        usual = min(rule["factor"] * self.pairs ** rule["exponent"], rule["most"], self.most)
        return 100 * round(max(usual, rule["least"]) / 100)

    def characters_per_token(self) -> float:
        """The estimated mean number of characters in a sub-word; it grows with the vocabulary."""
        return 1.0 + 0.8 * math.log10(self.vocabulary())

    def row_length(self) -> int:
        """The length of rows, in sub-words, that suits this text: twice the longest sentence.

        The longest sentence is the longest of `lengths`, and its sub-words are estimated. The
        result is rounded up to a multiple of 32, and is at least 96 and at most 256.
        """
        longest = max(map(max, self.lengths), default=0) / self.characters_per_token() + 1
        return int(min(max(96, -(-2 * longest // 32) * 32), 256))

    def suited(self, recipe: Recipe) -> Recipe:
        """The recipe with the vocabulary, row length and BLEU tokenizer that suit this text.

        The maximum length of a sentence becomes the row length. The vocabulary has at least 300 and
        at most 1,000,000 entries, even if the text's tokenizer has fewer or more.
        """
        rows = {"row_length": self.row_length(), "max_length": self.row_length()}
        vocabulary = min(max(300, self.vocabulary()), 10**6)
        return recipe.but(**rows, vocabulary=vocabulary, bleu_tokenizer=self.bleu_tokenizer)

    def target_and_source(self, recipe: Recipe) -> tuple[int, int]:
        """The sizes of the target's and the source's vocabulary.

        Without a tokenizer, both are the size that the recipe sets.
        """
        if self.tokenizer is not None:
            return self.tokenizer.size, self.tokenizer.source_size
        return recipe.tokenizer.vocabulary, recipe.tokenizer.vocabulary

    @property
    def tokens(self) -> float:
        """The estimated number of target tokens: the sub-words, and </s> of each sentence."""
        return self.characters / self.characters_per_token() + max(self.pairs, 1)


class _Counted:
    """Counts the different pairs of a text that may be trained on.

    Only pairs whose checksum is a multiple of `_every` are kept. `_every` is 1 at first, and is
    doubled whenever more than COUNTED pairs are kept. The counts of the whole text are estimated as
    `_every` times the counts of the kept pairs.
    """

    def __init__(self) -> None:
        self.read = [0, 0]
        """Numbers of characters in all sources and in all targets."""
        self.first: list[tuple[int, int]] = []
        """The numbers of characters in source and target, for the first SAMPLED pairs counted."""
        self.targets: list[str] = []
        """The targets of the first SAMPLED pairs counted."""
        self._every = 1
        self._kept: dict[int, tuple[int, int]] = {}
        """Maps the digest of each kept pair to the pair's checksum and the length of its target."""

    def add(self, source: str, target: str) -> None:
        """Count a pair, unless `judge_text` or `_every` excludes it, or it was counted before.

        The pair's characters are added to `read` in any case.
        """
        self.read[0] += len(source)
        self.read[1] += len(target)
        checksum = crc32(target.encode(), crc32(source.encode()))
        if checksum % self._every or judge_text(source, target, RULES) is not Verdict.KEPT:
            return
        number = digest((source, target))
        if number in self._kept:
            return
        self._kept[number] = checksum, len(target)
        if len(self.first) < SAMPLED:
            self.first.append((len(source), len(target)))
            self.targets.append(target)
        if len(self._kept) > COUNTED:
            self._every *= 2
            self._kept = {n: kept for n, kept in self._kept.items() if not kept[0] % self._every}

    @property
    def pairs(self) -> int:
        """The number of different pairs, estimated if `_every` is above 1."""
        return self._every * len(self._kept)

    @property
    def characters(self) -> int:
        """The number of characters in the different pairs' targets, estimated like `pairs`."""
        return self._every * sum(length for _, length in self._kept.values())
