"""Recipes by name: the paper's, and ours for less text and smaller machines."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from regard import paper
from regard.errors import unknown
from regard.recipe import Recipe

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
"""Up to some 200,000 pairs, on a laptop: strong dropout, a short warm-up, small batches."""

SMALL_PARSE = Recipe().but(
    output="trees",
    layers=2,
    d_model=128,
    d_ff=512,
    heads=4,
    vocabulary=2000,
    source_tokens=2048,
    target_tokens=2048,
    steps=18_000,
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
"""Parsers (§6.3) from thousands of trees, in an hour and a half of one core.

With d_model 256 F1 is lower, and a step takes twice the time; a beam of 4 has 7 points less, one of
21 not a point more: experiments/table4.
"""

NAMED: Mapping[str, Recipe] = MappingProxyType(
    {**paper.NAMED, "small": SMALL, "small-parse": SMALL_PARSE}
)
"""Every recipe that `--recipe NAME` or `base = "NAME"` may start from."""

SMALL_CORPUS = 200_000
"""Pairs up to which the paper's models learn their training text by heart."""


def recipe_named(name: str) -> Recipe:
    """The recipe of this name, or in the file of this name; raises RecipeError."""
    if name in NAMED:
        return NAMED[name]
    if Path(name).suffix or "/" in name or Path(name).exists():
        return Recipe.read(name, NAMED)
    raise unknown("recipe", name, list(NAMED))


def suited_to(pairs: int) -> Recipe:
    """The recipe to begin with for so many sentence pairs."""
    return SMALL if pairs <= SMALL_CORPUS else paper.BASE
