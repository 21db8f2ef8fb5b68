"""What a parser learns from, made of files of trees: of `regard train` and `regard prepare`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RecipeError, RegardError

if TYPE_CHECKING:
    from regard.data.prepare import Report
    from regard.recipe import Recipe


@dataclass(frozen=True)
class TreeFiles:
    """Files of trees as the command line gives them; none where nothing is to be parsed."""

    trees: Sequence[Path] = ()
    valid: Sequence[Path] = ()
    silver: Sequence[Path] = ()
    silver_share: float | None = None

    def refuse_unfit(self, task: str | None, with_text: bool) -> None:
        """Raise RegardError where the options do not go together."""
        if task not in (None, "translate", "parse"):
            raise RecipeError(f"--task {task}: it is translate or parse")
        if self.silver_share is not None and not 0 < self.silver_share < 1:
            raise RecipeError(f"--silver-share {self.silver_share}: it lies between 0 and 1")
        if (self.valid or self.silver) and not self.trees:
            raise RegardError("--valid-trees and --silver go with gold trees: give --trees too")
        if self.silver_share is not None and not self.silver:
            raise RegardError("--silver-share is the share of silver trees: give --silver too")
        if self.trees and (task == "translate" or with_text):
            raise RegardError("--trees is for parsing, --source and --target are for translation")

    def prepare(self, out: Path, recipe: "Recipe", tokenizer: Path | None, quiet: bool) -> "Report":
        """Prepare data in `out`, with progress on stderr unless `quiet`."""
        from contextlib import nullcontext

        from regard.cli.prepare import PreparationDisplay, leaving_on_sigterm
        from regard.data.treebank import prepare_trees

        with (
            leaving_on_sigterm(),
            nullcontext(lambda _: None) if quiet else PreparationDisplay("trees") as display,
        ):
            return prepare_trees(
                self.trees,
                out,
                recipe,
                valid_trees=self.valid,
                silver=self.silver,
                silver_share=self.silver_share,
                tokenizer=tokenizer,
                progress=display,
            )


def refuse_text(recipe: "Recipe") -> None:
    """Raise RegardError where text was given to a recipe that learns from trees."""
    if recipe.task.output == "trees":
        raise RegardError("parsing is learned from trees: give --trees, not --source and --target")


def refuse_other_task(data: Path, recipe: "Recipe") -> None:
    """Raise RecipeError where prepared data is not for what the recipe is to learn."""
    from regard.data.pairs import recipe_of

    found, wanted = recipe_of(data).task, recipe.task
    if found != wanted:
        names = {"text": "translation", "trees": "parsing"}
        made, asked = (
            names[one.output] + f", form {one.form}" * (found.output == wanted.output)
            for one in (found, wanted)
        )
        raise RecipeError(
            f"{data}: was prepared for {made}, and the recipe is for {asked}: choose another "
            "recipe, or prepare other data"
        )
