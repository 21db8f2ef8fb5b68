"""What `regard train` begins with: a recipe, and prepared data for it, made now if need be."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.treebank import TreeFiles, refuse_other_task
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.recipe import Recipe


@dataclass(frozen=True)
class TextFiles:
    """Files of text as the command line gives them."""

    source: Sequence[Path]
    target: Sequence[Path]
    valid_source: Sequence[Path]
    valid_target: Sequence[Path]

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return any((self.source, self.target, self.valid_source, self.valid_target))


@dataclass(frozen=True)
class Start:
    """What the command line asks for."""

    out: Path
    task: str | None
    texts: TextFiles
    trees: TreeFiles
    data: Path | None
    tokenizer: Path | None
    recipe: str | None
    assignments: Sequence[str]
    quiet: bool

    def __call__(self) -> "tuple[Recipe, Path]":
        """The recipe, and prepared data; raises RegardError where they do not go together."""
        from regard.run.beginning import begun

        self.trees.refuse_unfit(self.task, with_text=self.texts.any)
        if self.data is not None and (self.texts.any or self.trees.trees or self.tokenizer):
            raise RegardError(
                f"{self.data}: is prepared data, which has its text and tokenizer: give --data, or "
                "--source and --target or --trees, not both"
            )
        earlier, prepared = begun(self.out), self.data or self.out / "data"
        there = self.data is not None or (prepared.is_dir() and (earlier or not self._can_prepare))
        if not (there or self._can_prepare):
            raise RegardError(
                f"{self.out}: nothing to train on yet: give --source and --target, --trees, or "
                "--data"
            )
        recipe = self._recipe(earlier, prepared if there else None)
        if not there:
            self._prepare(prepared, recipe)
        elif self.data is None:
            _refuse_other_text(prepared, [*self.texts.source, *self.texts.target, *self.trees.all])
        refuse_other_task(prepared, recipe)
        return recipe, prepared

    @property
    def _can_prepare(self) -> bool:
        return bool(self.trees.trees or (self.texts.source and self.texts.target))

    def _prepare(self, prepared: Path, recipe: "Recipe") -> None:
        from regard.cli.prepare import prepare_for_training

        if self.trees.trees:
            self.trees.prepare(prepared, recipe, self.tokenizer, self.quiet)
            return
        texts = self.texts
        prepare_for_training(
            list(texts.source),
            list(texts.target),
            prepared,
            recipe,
            list(texts.valid_source),
            list(texts.valid_target),
            self.tokenizer,
            self.quiet,
        )

    def _recipe(self, earlier: "Recipe | None", prepared: Path | None) -> "Recipe":
        from regard.presets import recipe_named

        if self.recipe is not None:
            found = recipe_named(self.recipe)
        else:
            found = earlier or self._suited(prepared)
        if self.task == "parse" or self.trees.trees:
            found = found.but(output="trees")
        elif self.task == "translate":
            found = found.but(output="text")
        return found.set(*self.assignments)

    def _suited(self, prepared: Path | None) -> "Recipe":
        """The recipe that suits what is to be learned from."""
        from regard.cli.prepare import recipe_for
        from regard.data.pairs import Pairs, task_of
        from regard.presets import SMALL_PARSE, suited_to

        if self.trees.trees or (prepared and task_of(prepared).output == "trees"):
            return SMALL_PARSE
        if prepared:
            return suited_to(len(Pairs.open(prepared, "train")))
        return recipe_for(list(self.texts.source))


def _refuse_other_text(data: Path, paths: Sequence[Path]) -> None:
    from regard.data.pairs import read_manifest
    from regard.text.files import checksum

    known = str(read_manifest(data).get("inputs"))
    for path in paths:
        if checksum(path) not in known:
            raise RegardError(
                f"{path}: is not the text that this run was begun with: choose another --out, or "
                "go on with that text by leaving --source, --target and --trees out"
            )
