"""The settings of a training, as text; numbers on the disk are valid only for equal settings."""

import json

from regard.recipe import Recipe, changes


def settings_of(recipe: Recipe) -> str:
    """All fields of a recipe that differ from those of `Recipe()`, as JSON.

    `decoder_heads` and `decoder_d_ff` are also left out if they equal the recipe's `heads` and
    `d_ff`. If a later version of regard adds a field, the text of an earlier recipe stays the same,
    because the recipe has the default value of the new field.
    """
    follow = {"decoder_heads": recipe.model.heads, "decoder_d_ff": recipe.model.d_ff}
    changed = ((one.field.partition(".")[2], one.new) for one in changes(Recipe(), recipe))
    return json.dumps({name: value for name, value in changed if value != follow.get(name)})
