"""Recipes by name: those of the paper, of smaller models, and of the other model families."""

from collections.abc import Mapping
from pathlib import Path

from regard import paper
from regard.errors import unknown
from regard.recipe import HELP, Recipe

SMALL = Recipe().but(
    layers=3,
    d_model=256,
    d_ff=1024,
    heads=4,
    dropout=0.3,
    vocabulary=8000,
    deduplicate=True,
    max_length=128,
    row_length=128,
    source_tokens=4096,
    target_tokens=4096,
    steps=6000,
    warmup_steps=600,
    validate_every=1000,
    save_every=250,
    save_minutes=0.0,
    keep=8,
    average=8,
)
"""A translation model that a laptop can train on a small text.

The recipe has strong dropout, a short warm-up and small batches.
"""

SMALL_PARSE = Recipe().but(
    output="trees",
    positions="words",
    recombined=30_000,
    layers=2,
    d_model=128,
    d_ff=512,
    heads=4,
    vocabulary=2000,
    source_tokens=2048,
    target_tokens=2048,
    steps=9000,
    warmup_steps=1000,
    validate_every=1500,
    validate_sentences=100,
    save_every=250,
    save_minutes=0.0,
    keep=8,
    average=8,
    beam=12,
    alpha=0.3,
    max_extra=300,
)
"""A parser (§6.3) that one core can train on thousands of trees in less than an hour.

In the measurements of experiments/table4 with 3,396 gold trees, F1 is 80.0 with positions counted
in words and a beam of 12, and 55.8 with the positions of §3.5 and a beam of 21. With positions
counted in words, a beam of 4 lowers F1 by at most one point, compared with this recipe's beam of
12, and a beam of 21 raises it by less than half a point.
"""

RECURRENT = SMALL.but(family="recurrent")
"""A recurrent model like GNMT (`families.recurrent`), for small texts."""

CONVOLUTIONAL = SMALL.but(family="convolutional", layers=6, positions="learned", max_positions=1024)
"""A convolutional model like ConvS2S (`families.convolutional`), for small texts."""

DILATED = SMALL.but(family="dilated", layers=10, d_model=384)
"""A model like ByteNet (`families.dilated`), for small texts.

Each stack has ten layers: two for each of the five dilations.
"""

RECIPES: Mapping[str, Recipe] = {
    **paper.PAPER_RECIPES,
    "small": SMALL,
    "small-parse": SMALL_PARSE,
    "recurrent": RECURRENT,
    "convolutional": CONVOLUTIONAL,
    "dilated": DILATED,
}
"""All recipes that `--recipe NAME` and `base = "NAME"` may name."""


def recipe_named(name: str) -> Recipe:
    """The recipe with this name, or the recipe in the file with this name.

    Raises RecipeError if there is neither, or if the file is not a recipe.
    """
    if name in RECIPES:
        return RECIPES[name]
    if Path(name).suffix or "/" in name or Path(name).exists():
        return Recipe.read(name, RECIPES)
    small_first = sorted(RECIPES, key=lambda known: known in paper.PAPER_RECIPES)
    raise unknown("recipe", name, small_first, where=HELP)
