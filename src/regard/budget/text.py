"""The size of a parallel text, and what follows from it alone: vocabulary and rows."""

import math
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.data.pairs import Pairs
from regard.errors import DataError
from regard.files.lines import read_lines, refuse_unreadable
from regard.recipe import Recipe
from regard.text.opening import open_tokenizer
from regard.text.protocol import AnyTokenizer

SAMPLED = 2000
"""A `ParallelText` has the lengths of its first pairs, at most this many."""


@cache
def rule_of_times() -> dict[str, Any]:
    """The constants of rule.toml."""
    return tomllib.loads(files("regard.budget").joinpath("rule.toml").read_text(encoding="utf-8"))


class ParallelText(NamedTuple):
    """The size of a parallel text."""

    pairs: int
    characters: int
    """Characters of the target side."""
    lengths: tuple[tuple[int, int], ...]
    """For each of the first pairs, the characters of its source and of its target."""
    tokenizer: AnyTokenizer | None = None
    """A tokenizer that is used unchanged; None if one is to be learned from the text."""

    @classmethod
    def of(
        cls, sources: Sequence[Path], targets: Sequence[Path], tokenizer: Path | None = None
    ) -> "ParallelText":
        """Read all lines; raises DataError if a file cannot be read, or a side has no characters.

        Files with different numbers of lines are accepted. Raises ModelError if the tokenizer
        cannot be opened.
        """
        known = None if tokenizer is None else open_tokenizer(tokenizer)
        for path in (*sources, *targets):
            refuse_unreadable(path)
        lengths: list[tuple[int, int]] = []
        pairs = characters = 0
        for source, target in zip(sources, targets, strict=False):
            both = zip(read_lines(source), read_lines(target), strict=False)
            for one, other in islice(both, SAMPLED - len(lengths)):
                lengths.append((len(one), len(other)))
        for path in targets:
            for line in read_lines(path):
                pairs, characters = pairs + 1, characters + len(line)
        # All lines are read, so that a bad one is refused now, before models are timed.
        read = sum(sum(map(len, read_lines(path))) for path in sources)
        if not read or not characters:
            empty = targets[0] if read else sources[0]
            raise DataError("has no text: give text to learn from", empty)
        return cls(pairs, characters, tuple(lengths or [(1, 1)]), known)

    @classmethod
    def of_data(cls, data: Path) -> "ParallelText":
        """The approximate size of the text that this data was prepared from.

        Raises DataError if the data is missing or damaged, and ModelError if its tokenizer cannot
        be opened.
        """
        pairs = Pairs.open(data, "train")
        known = open_tokenizer(data)
        each = cls(len(pairs), 0, (), known).characters_per_token()
        both = np.stack([pairs.source_lengths, pairs.target_lengths], 1) - 1
        some = (both[:SAMPLED] * each).astype(int).tolist()
        lengths = tuple((s, t) for s, t in some)
        return cls(len(pairs), int(both[:, 1].sum() * each), lengths, known)

    def vocabulary(self) -> int:
        """The size of the target's vocabulary: the tokenizer's, or else one that suits the text."""
        if self.tokenizer is not None:
            return self.tokenizer.size
        rule = rule_of_times()["vocabulary"]
        return 100 * round(
            min(max(rule["factor"] * self.pairs ** rule["exponent"], rule["least"]), rule["most"])
            / 100
        )

    def characters_per_token(self) -> float:
        """The estimated mean length of a sub-word; a larger vocabulary has longer sub-words."""
        return 1.0 + 0.8 * math.log10(self.vocabulary())

    def row_length(self) -> int:
        """The width of rows that suits this text, in sub-words: twice its longest sampled sentence.

        The width is rounded up to a multiple of 32, and is at least 96 and at most 256.
        """
        longest = max(map(max, self.lengths), default=0) / self.characters_per_token() + 1
        return int(min(max(96, -(-2 * longest // 32) * 32), 256))

    def suited(self, recipe: Recipe) -> Recipe:
        """The recipe with the vocabulary and the rows that suit this text."""
        rows = {"row_length": self.row_length(), "max_length": self.row_length()}
        return recipe.but(**rows, vocabulary=min(max(300, self.vocabulary()), 10**6))

    def vocabularies(self, recipe: Recipe) -> tuple[int, int]:
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
