"""Fit a recipe to data that was prepared earlier."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from regard.data.pairs import DECIDED, recipe_of
from regard.errors import RecipeError
from regard.recipe import Recipe, assigned_field, changes


def for_text(recipe: Recipe) -> Recipe:
    """The recipe with task.output = "text"; raises RecipeError if model.positions is "words"."""
    if recipe.model.positions == "words":
        raise RecipeError(
            '--task translate: the recipe is for parsing (model.positions = "words"): name a '
            "recipe, data and an --out that are for translation"
        )
    return recipe.but(output="text")


def refuse_other_task(data: Path, recipe: Recipe) -> None:
    """Raise RecipeError if the data was prepared for another task, or for another form of trees.

    Also raises DataError as `recipe_of` does.
    """
    found, wanted = recipe_of(data).task, recipe.task
    if found != wanted:
        names = {"text": "translation", "trees": "parsing"}
        made, asked = (
            names[one.output] + f", form {one.form}" * (found.output == wanted.output)
            for one in (found, wanted)
        )
        raise RecipeError(
            f"{data}: was prepared for {made}, and the recipe is for {asked}: choose another "
            "recipe, leave out --task, or prepare other data"
        )


def as_prepared(
    recipe: Recipe, data: Path, assignments: Sequence[str], remark: Callable[[str], object]
) -> Recipe:
    """Copy the fields that decide how data is prepared (DECIDED) from `data` into the recipe.

    Returns the new recipe. If fields change, `remark` gets a sentence that names the changes.
    `assignments` are the values of --set. Raises RecipeError if one of them assigns a changed
    field, or if the new recipe is not valid; DataError as `recipe_of` does.
    """
    made = recipe_of(data).model_dump()
    decided = recipe.merged(
        {section: {key: made[section][key] for key in keys} for section, keys in DECIDED.items()}
    )
    changed, assigned = changes(recipe, decided), set(map(assigned_field, assignments))
    if asked := [change for change in changed if change.field in assigned]:
        raise RecipeError(
            f"{data}: was prepared with other settings ({'; '.join(map(str, asked))}): leave them "
            "out of --set, or prepare the data again"
        )
    if changed:
        remark(f"{data}: keeps the settings of its preparation ({'; '.join(map(str, changed))})")
    return decided


def remark_more_time(
    before: Recipe | None, recipe: Recipe, remark: Callable[[str], object]
) -> None:
    """Call `remark` with a sentence if a run gets more time, but has only a share of its text.

    `before` is the run's recipe until now, or None for a new run; `recipe` is its new recipe.
    """
    if before is None or recipe.data.share == 1:
        return
    if (before.training.minutes or math.inf) < (recipe.training.minutes or math.inf):
        remark(
            f"the run gets more time, and its data stays {100 * recipe.data.share:.2g}% of its "
            "text, drawn at random (data.share): for more of the text, begin a new run"
        )
