"""Every shipped recipe can be read and built; recipes are chosen by name and by corpus size."""

from pathlib import Path

import pytest
import torch

from regard.cli.demo_translate import demo_recipe
from regard.errors import RecipeError
from regard.families.choose import new_model
from regard.paper import parameters
from regard.presets import RECIPES, recipe_named
from regard.recipe import Recipe, changes

SHIPPED = sorted((Path(__file__).parents[1] / "experiments").rglob("recipe.toml"))


def built(recipe: Recipe) -> None:
    with torch.device("meta"):
        new_model(recipe.model, recipe.tokenizer.vocabulary)


@pytest.mark.parametrize("name", RECIPES)
def test_named_recipes_are_built(name: str) -> None:
    assert recipe_named(name) is RECIPES[name]
    built(RECIPES[name])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_recipes_of_experiments_are_built(path: Path) -> None:
    built(recipe_named(str(path)))


def test_the_demo_is_built() -> None:
    built(demo_recipe())


def test_recipes_of_the_families_have_about_as_many_parameters_as_small() -> None:
    small = parameters(RECIPES["small"].model, 8000)
    for family in ("recurrent", "convolutional", "dilated"):
        assert RECIPES[family].model.family == family
        assert 0.8 < parameters(RECIPES[family].model, 8000) / small < 1.2


def test_a_recipe_survives_toml() -> None:
    for recipe in RECIPES.values():
        assert Recipe.from_toml(recipe.to_toml()) == recipe


def test_changes_are_named_with_both_values() -> None:
    assert changes(Recipe(), Recipe()) == []
    changed = changes(Recipe(), Recipe().but(seed=3, beam=2))
    assert changed == [("training.seed", 1, 3), ("search.beam", 4, 2)]
    assert list(map(str, changed)) == ["training.seed: 1 -> 3", "search.beam: 4 -> 2"]


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(RecipeError, match="did you mean base"):
        recipe_named("bsae")


def test_width_is_split_among_the_heads_unless_given() -> None:
    assert Recipe().but(d_model=256).model.d_k == 32
    assert Recipe().but(heads=4, d_k=13).model.d_k == 13
    assert Recipe().but(heads=4, d_k=13).model.d_v == 128


def test_the_decoder_has_as_many_layers_unless_it_is_said() -> None:
    assert Recipe().set("model.layers=4").model.decoder_layers == 4
    shallow = Recipe().set("model.layers=12", "model.decoder_layers=2")
    assert (shallow.model.depth, Recipe().model.depth) == ("12+2", "6")
    assert shallow.but(d_model=64).model.decoder_layers == 2
    marked = "\ufeff[model]\nlayers = 3\n"  # some editors write a byte order mark
    assert Recipe.from_toml(marked).model.decoder_layers == 3
    assert Recipe.from_toml(shallow.to_toml()) == shallow
