"""A small text to prepare, and what is found of it afterwards."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from regard.data.encoding import SplitCounts
from regard.data.pairs import Pairs
from regard.data.prepare import Report, prepare_text
from regard.errors import DataError
from regard.recipe import Recipe
from regard.text.cleaning import Verdict
from regard.text.tokenizer import Tokenizer

RECIPE = Recipe().but(vocabulary=307, held_out=7)
SOURCES = [f"the {i} cats sat on {i * i} mats" for i in range(101)]
TARGETS = [f"die {i} Katzen saßen auf {i * i} Matten" for i in range(101)]


class Corpus:
    """A source and a target file, which a test may damage."""

    def __init__(self, folder: Path):
        self.source, self.target, self.out = folder / "text.en", folder / "text.de", folder / "out"
        self.write(SOURCES, TARGETS)

    def write(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        for path, lines in ((self.source, sources), (self.target, targets)):
            path.write_bytes("".join(line + "\n" for line in lines).encode())

    def prepare(self, recipe: Recipe = RECIPE, **options: object) -> Report:
        return prepare_text([self.source], [self.target], self.out, recipe, **options)  # type: ignore[arg-type]

    def refusal(self, recipe: Recipe = RECIPE, **options: object) -> str:
        """The message of the refusal; checks that no file is left behind."""
        before = everything_below(self.out.parent)
        with pytest.raises(DataError) as caught:
            self.prepare(recipe, **options)
        assert everything_below(self.out.parent) == before
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def prepared(self, split: str) -> list[tuple[str, str]]:
        """The text of the prepared pairs."""
        tokenizer, pairs = Tokenizer.load(self.out / "tokenizer.json"), Pairs.open(self.out, split)
        sources = tokenizer.decode([pairs.source(i).tolist() for i in range(len(pairs))])
        targets = tokenizer.decode([pairs.target(i).tolist() for i in range(len(pairs))])
        return list(zip(sources, targets, strict=True))


def everything_below(folder: Path) -> dict[Path, bytes]:
    return {p: b"" if p.is_dir() else p.read_bytes() for p in folder.rglob("*")}


def dropped(counts: SplitCounts) -> dict[str, int]:
    return {v.value: n for v in Verdict if (n := getattr(counts, v)) and v is not Verdict.KEPT}
