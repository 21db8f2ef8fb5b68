"""The settings of a training, as text; `parts.kept` refuses numbers kept with other settings."""

import json

from regard.recipe import Recipe, changes


def settings_of(recipe: Recipe) -> str:
    """All fields of a recipe that differ from those of `Recipe()`, as JSON.

    `decoder_heads` and `decoder_d_ff` are included if they differ from the recipe's `heads` and
    `d_ff`, and only then. If a later version of regard adds a field, the text of an earlier recipe
    stays the same, because the recipe has the default value of the new field.
    """
    found = {one.field.partition(".")[2]: one.new for one in changes(Recipe(), recipe)}
    for name in ("heads", "d_ff"):
        decoder = f"decoder_{name}"
        own = getattr(recipe.model, decoder)
        if own == getattr(recipe.model, name):
            found.pop(decoder, None)
        else:
            found.setdefault(decoder, own)
    return json.dumps(found)
