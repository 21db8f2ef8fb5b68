"""The settings of a training, as text: kept numbers are valid only for equal settings."""

import json

from regard.recipe import Recipe, changes


def settings_of(recipe: Recipe) -> str:
    """All fields of a recipe that differ from the defaults, as JSON.

    `decoder_heads` and `decoder_d_ff` are left out if they equal `heads` and `d_ff`, their default
    values. If a later version of regard adds a field, earlier recipes have its default value, so
    that the text of these recipes stays the same.
    """
    follow = {"decoder_heads": recipe.model.heads, "decoder_d_ff": recipe.model.d_ff}
    changed = ((one.field.partition(".")[2], one.new) for one in changes(Recipe(), recipe))
    return json.dumps({name: value for name, value in changed if value != follow.get(name)})
