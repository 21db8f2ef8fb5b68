"""The interface of a scale, and the scale `mini`, whose text is the built-in corpus."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

from regard.api import prepare
from regard.corpus import examples, write_corpus
from regard.paper import BASE
from regard.recipe import Recipe

TestSet = tuple[list[str], list[str]]
"""Sentences, and their translations."""


class Scale(Protocol):
    """A size at which the tables are made.

    `parts.kept` keeps the numbers of each training, and of each test, with the settings that the
    numbers depend on. If the settings change, it refuses the numbers. The settings of some tests
    include the repr of their scale, so the repr should stay the same in later versions. Therefore
    the repr leaves out fields that a later version may extend, such as a recipe. A changed recipe
    is noticed, too: the settings of each training contain its recipe.
    """

    @property
    def name(self) -> str:
        """The name of the scale in `--scale`."""

    @property
    def text(self) -> str:
        """A description of the text to learn from."""

    @property
    def language(self) -> str:
        """The code of the language to translate into, from English."""

    @property
    def korean(self) -> str:
        """`text` in Korean, in words that the Korean particle 로 can follow."""

    @property
    def seeds(self) -> int:
        """The number of seeds of each row, unless the user names another number."""

    def fetch(self, out: Path) -> None:
        """Find or download what `prepare` reads; raises RegardError if that is not possible.

        After this call, nothing in `out` depends on the scale: another scale may still be chosen.
        """

    def prepare(self, out: Path) -> None:
        """Prepare the data in `out`; only one process at a time may call this for one `out`."""

    def base(self, out: Path) -> Recipe:
        """The recipe that takes the place of the paper's base model.

        After `prepare`, every call for this `out` returns the same recipe. Raises RegardError if
        the recipe cannot be read or chosen.
        """

    def unseen(self, out: Path) -> TestSet:
        """Unseen sentences and their translations: no training and no validation uses them."""


_TRAIN, _VALID, _TEST = 21, 22, 23
"""Seeds of the built-in corpus, for training, validation and test."""


def data_in(out: Path) -> Path:
    """The directory of a study's prepared data."""
    return out / "data"


def prepare_folder(
    out: Path, folder: Path, recipe: Recipe, language: str = "de", valid: str = "valid"
) -> None:
    """Prepare data in `out`/data from a folder of train.en, `valid`.en and their translations.

    The names of the translations end in the code `language`, as in train.de.
    """
    prepare(
        out=data_in(out),
        source=folder / "train.en",
        target=folder / f"train.{language}",
        valid_source=folder / f"{valid}.en",
        valid_target=folder / f"{valid}.{language}",
        recipe=recipe,
    )


MINI_BASE = BASE.but(
    layers=3,
    d_model=128,
    d_ff=512,
    vocabulary=1000,
    max_length=64,
    row_length=64,
    source_tokens=1024,
    target_tokens=1024,
    steps=1600,
    warmup_steps=800,
    log_every=20,
    validate_every=1600,
    validate_sentences=500,
    save_every=50,
)
"""The base model at a quarter of its width and half its depth, for the built-in corpus. Dropout,
label smoothing, search and the formula of the learning rate are the paper's. The warm-up is half of
the steps, because row C3 had a BLEU of only 6 after 1,600 steps when the warm-up had 300 steps
(experiments/tables)."""


@dataclass(frozen=True)
class Mini:
    """The built-in corpus, without a download; training a row takes about two minutes on a core."""

    recipe: Recipe = field(default=MINI_BASE, repr=False)
    pairs: int = 5000
    """The number of pairs to learn from; the base model sees each pair about fourteen times."""
    validated: int = 500
    """The number of pairs in the development set."""
    tested: int = 500
    """The number of unseen pairs that Table 2 translates."""

    name: str = "mini"
    text: str = "the built-in English-German corpus"
    language: str = field(default="de", repr=False)
    korean: str = field(default="내장 영어-독일어 말뭉치", repr=False)
    seeds: int = 1

    def fetch(self, out: Path) -> None:
        """Do nothing: the corpus is built in."""

    def prepare(self, out: Path) -> None:
        """Write the corpus and prepare it."""
        folder = out / "corpus"
        write_corpus(folder / "train", _TRAIN, self.pairs)
        write_corpus(folder / "valid", _VALID, self.validated)
        prepare_folder(out, folder, self.recipe)

    def base(self, out: Path) -> Recipe:
        """The recipe that takes the place of the paper's base model."""
        return self.recipe

    def unseen(self, out: Path) -> TestSet:
        """Unseen sentences of the built-in corpus, and their translations."""
        found = list(islice(examples(_TEST), self.tested))
        return [one.source for one in found], [one.target for one in found]
