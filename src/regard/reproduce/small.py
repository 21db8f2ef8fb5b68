"""Scale `small`: real text, and a recipe that is chosen by the method of `regard train --time`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from regard.budget.choice import Choice, choose
from regard.budget.text import ParallelText
from regard.errors import DataError
from regard.files.lines import read_lines
from regard.files.whole import write_file
from regard.machine.threads import computing_with
from regard.paper import BASE
from regard.recipe import Recipe
from regard.reproduce.scales import TestSet, prepare_folder

_SAVED = 30
"""The approximate number of checkpoints that a run saves."""


@dataclass(frozen=True)
class Small:
    """Multi30k, English to German or French; REGARD_DATA names the folder that holds multi30k/."""

    minutes: float = field(default=30.0, repr=False)
    """The recipe of the row "base" is chosen to train for this many minutes on one core."""
    name: str = "small"
    text: str = "Multi30k, English to German"
    language: str = field(default="de", repr=False)
    korean: str = field(default="Multi30k의 영어-독일어 데이터", repr=False)
    seeds: int = 1

    def fetch(self, out: Path) -> None:
        """Choose the recipe that `prepare` writes; raises the errors of `base`."""
        self.base(out)

    def prepare(self, out: Path) -> None:
        """Write the recipe to `out`/base.toml, and prepare the text."""
        folder, recipe = self._folder(), self.base(out)
        write_file(out / "base.toml", recipe.to_toml())
        prepare_folder(out, folder, recipe, self.language, valid="val")

    def base(self, out: Path) -> Recipe:
        """The recipe that takes the place of the paper's base model: `out`/base.toml, or a new one.

        A new recipe is chosen as in `regard train --time`, with Adam. Then it gets eight heads, and
        dropout, label smoothing, validation and averaging as in the paper's tables. The new recipe
        limits the steps and not the time, so that rows of other sizes take as many steps as base
        (row big: three times as many). The warm-up is half of the steps, as at scale mini: with the
        shorter warm-up of the chosen recipe, C3 and big had BLEU 14 and 13 (experiments/tables).
        Raises RecipeError if base.toml is damaged or cannot be read. For a new recipe, raises
        DataError if the text is missing, and the errors of `choose`.
        """
        kept = out / "base.toml"
        if kept.exists():
            return Recipe.read(kept)
        folder = self._folder()
        choice = _chosen(folder, self.language, self.minutes)
        rows = sum(1 for _ in read_lines(folder / "val.en"))
        return choice.recipe.but(
            heads=8,
            dropout=BASE.model.dropout,
            label_smoothing=BASE.training.label_smoothing,
            steps=choice.steps,
            warmup_steps=choice.steps // 2,
            minutes=0.0,
            best="last",
            tune=False,
            validate_every=choice.steps,
            validate_sentences=rows,
            save_every=max(1, choice.steps // _SAVED),
            keep=BASE.training.keep,
            average=BASE.training.average,
        )

    def unseen(self, out: Path) -> TestSet:
        """The English sentences of Multi30k's Flickr test set of 2016, and their translations."""
        source, target = (
            list(read_lines(self._folder() / f"test_2016_flickr.{language}"))
            for language in ("en", self.language)
        )
        return source, target

    def _folder(self) -> Path:
        named = os.environ.get("REGARD_DATA")
        folder = Path(named or "", "multi30k")
        if not named or not folder.is_dir():
            raise DataError(
                f"--scale {self.name} needs REGARD_DATA to name a folder with multi30k/, which has "
                f"train, val and test_2016_flickr in .en and .{self.language}: set it, or choose "
                "--scale mini"
            )
        return folder


@cache
def _chosen(folder: Path, language: str, minutes: float) -> Choice:
    """Choose a recipe for the text of a folder; a process makes each choice only once.

    The machine's speed is measured with one thread, because each row is trained with one thread.
    """
    text = ParallelText.of([folder / "train.en"], [folder / f"train.{language}"])
    # The vocabulary does not depend on which model is chosen: rows of all sizes share it.
    asked = "training.optimizer=adam", f"tokenizer.vocabulary={text.vocabulary()}"
    with computing_with(1):
        return choose(text, minutes, asked=asked)
