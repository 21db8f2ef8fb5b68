"""What `regard train` begins with: a recipe, and prepared data for it, made now if need be."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.treebank import TreeFiles, refuse_other_task, refuse_text
from regard.errors import RecipeError, RegardError

if TYPE_CHECKING:
    from regard.recipe import Recipe
    from regard.run.model_directory import Model


DECIDED = {
    "tokenizer": ("kind", "vocabulary"),
    "data": ("max_length", "max_ratio", "deduplicate", "held_out"),
}
"""What of a recipe was done when data was prepared."""


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
    start_from: Path | None = None
    """A model, whose recipe and tokenizer serve where no other is named."""

    def __call__(self) -> "tuple[Recipe, Path]":
        """The recipe, and prepared data; raises RegardError where they do not go together."""
        from regard.arithmetic.int8 import refuse_int8_training
        from regard.data.layouts import refuse_without_room
        from regard.machine.devices import choose_device
        from regard.run.beginning import begun
        from regard.run.finetuning import keep_origin, refuse_other_shape
        from regard.score.bleu import refuse_missing

        self._refuse_unfit()
        model = None if self.start_from is None else self._model(self.start_from)
        earlier, prepared = begun(self.out), self.data or self.out / "data"
        there = self.data is not None or (prepared.is_dir() and (earlier or not self._can_prepare))
        if not (there or self._can_prepare):
            raise RegardError(f"{self.out}: {self._nothing_to_train_on()}")
        began_with = earlier or (None if model is None else model.recipe)
        recipe = self._recipe(began_with, prepared if there else None)
        if self.texts.any:
            refuse_text(recipe)
        if recipe.training.precision == "int8":
            refuse_int8_training(choose_device())
        if not there:
            refuse_without_room(recipe.data)
            refuse_missing(recipe.training.bleu_tokenizer)
        if self.start_from is not None and model is not None:
            set_here = any(field.startswith("tokenizer.") for field in self.assignments)
            if set_here and recipe.tokenizer != model.recipe.tokenizer:
                raise RegardError(f"{self.start_from}: has a tokenizer: leave tokenizer.* as it is")
            refuse_other_shape(self.start_from, model, recipe)
            keep_origin(self.start_from, self.out)
        if not there:
            self._prepare(prepared, recipe)
        elif self.data is None and (self.texts.any or self.trees.trees):
            self._refuse_other_input(prepared)
        refuse_other_task(prepared, recipe)
        return (recipe if self.data is None else self._as_prepared(recipe)), prepared

    def _refuse_unfit(self) -> None:
        """Raise RegardError where the options do not go together."""
        self.trees.refuse_unfit(self.task, with_text=self.texts.any)
        if self.data is not None and (self.texts.any or self.trees.trees or self.tokenizer):
            raise RegardError(
                f"{self.data}: is prepared data, which has its text and tokenizer: give --data, or "
                "--source and --target or --trees, not both"
            )

    def _nothing_to_train_on(self) -> str:
        if (self.out / "checkpoints").is_dir():
            return "was begun with --data: give it again"
        return "nothing to train on yet: give --source and --target, --trees, or --data"

    def _model(self, directory: Path) -> "Model":
        """The model to begin with; raises RegardError where it is for another task."""
        from regard.run.model_directory import open_model
        from regard.text.tokenizer import Tokenizer

        model = open_model(directory)
        made = asked = model.recipe.task.output
        if self.task == "parse" or self.trees.trees:
            asked = "trees"
        elif self.task == "translate" or self.texts.any:
            asked = "text"
        if asked != made:
            kind = {"text": "translator", "trees": "parser"}
            names = f"{kind[made]}: a {kind[asked]}"
            raise RegardError(f"{directory}: is a {names} cannot begin with it")
        if self.tokenizer is not None and (
            Tokenizer.load(self.tokenizer).fingerprint != model.tokenizer.fingerprint
        ):
            raise RegardError(f"{directory}: has a tokenizer of its own: leave out --tokenizer")
        return model

    @property
    def _can_prepare(self) -> bool:
        return bool(self.trees.trees or (self.texts.source and self.texts.target))

    def _prepare(self, prepared: Path, recipe: "Recipe") -> None:
        from regard.cli.prepare import prepare_for_training

        tokenizer = self.tokenizer
        if tokenizer is None and self.start_from is not None:
            tokenizer = self.start_from / "tokenizer.json"
        if self.trees.trees:
            self.trees.prepare(prepared, recipe, tokenizer, self.quiet)
            return
        texts = self.texts
        prepare_for_training(
            list(texts.source),
            list(texts.target),
            prepared,
            recipe,
            list(texts.valid_source),
            list(texts.valid_target),
            tokenizer,
            self.quiet,
        )

    def _refuse_other_input(self, prepared: Path) -> None:
        """Raise RegardError where the run was begun with something else."""
        from regard.data.pairs import read_manifest
        from regard.files.lines import checksum

        manifest = read_manifest(prepared)
        inputs = manifest.get("inputs", {})
        advice = "choose another --out, or go on with what it was by leaving all of them out"
        for option, role, paths in self._inputs():
            begun_with = [record["sha256"] for record in inputs.get(role, [])]
            now = [checksum(path) for path in paths]
            for path, its in zip(paths, now, strict=True):
                if its not in begun_with:
                    raise RegardError(f"{path}: this run was begun with another {option}: {advice}")
            if now != begun_with:
                raise RegardError(f"{self.out}: was begun with other files of {option}: {advice}")
        share = manifest.get("silver_share")
        if share != self.trees.silver_share:
            how = "without --silver-share" if share is None else f"with --silver-share {share}"
            raise RegardError(f"{self.out}: was begun {how}: {advice}")

    def _inputs(self) -> list[tuple[str, str, Sequence[Path]]]:
        """Options, what the prepared data calls them, and their files."""
        texts, trees = self.texts, self.trees
        return [
            ("--source", "train.source", texts.source),
            ("--target", "train.target", texts.target),
            ("--valid-source", "valid.source", texts.valid_source),
            ("--valid-target", "valid.target", texts.valid_target),
            ("--trees", "train.trees", trees.trees),
            ("--valid-trees", "valid.trees", trees.valid),
            ("--silver", "silver.trees", trees.silver),
        ]

    def _recipe(self, earlier: "Recipe | None", prepared: Path | None) -> "Recipe":
        from regard.data.pairs import recipe_of
        from regard.presets import recipe_named

        if self.recipe is not None:
            found = recipe_named(self.recipe)
        elif earlier or prepared is None:
            found = earlier or self._suited()
        else:
            found = recipe_of(prepared)
        if self.task == "parse" or self.trees.trees:
            found = found.but(output="trees")
        elif self.task == "translate":
            found = found.but(output="text")
        return found.set(*self.assignments)

    def _as_prepared(self, recipe: "Recipe") -> "Recipe":
        """The recipe with what preparation has decided; raises RecipeError where --set differs."""
        from regard.cli.console import note
        from regard.data.pairs import recipe_of
        from regard.run.beginning import differences

        assert self.data is not None
        made = recipe_of(self.data).model_dump()
        decided = recipe.merged(
            {
                section: {key: made[section][key] for key in keys}
                for section, keys in DECIDED.items()
            }
        )
        if changes := differences(recipe, decided):
            assigned = {assignment.partition("=")[0].strip() for assignment in self.assignments}
            if any(change.partition(":")[0] in assigned for change in changes):
                raise RecipeError(
                    f"{self.data}: was prepared otherwise ({'; '.join(changes)}): leave that out "
                    "of --set, or prepare the data again"
                )
            if not self.quiet:
                note(f"{self.data}: stays as it was prepared ({'; '.join(changes)})")
        return decided

    def _suited(self) -> "Recipe":
        """The recipe that suits what is to be learned from."""
        from regard.cli.prepare import recipe_for
        from regard.presets import SMALL_PARSE

        if self.task == "parse" or self.trees.trees:
            return SMALL_PARSE
        return recipe_for(list(self.texts.source))
