"""The settings of a training, as text: kept numbers are valid only for equal settings."""

import json

from regard.recipe import Recipe


def settings_of(recipe: Recipe) -> str:
    """All fields of a recipe that differ from the defaults, as JSON.

    `decoder_heads` and `decoder_d_ff` are left out if they equal `heads` and `d_ff`, their default
    values. If a later version of regard adds a field, earlier recipes have its default value, so
    that the text of these recipes stays the same.
    """
    defaults = Recipe().model_dump()
    sizes = recipe.model
    follows = {
        "decoder_heads": sizes.decoder_heads == sizes.heads,
        "decoder_d_ff": sizes.decoder_d_ff == sizes.d_ff,
    }
    changed = {
        field: value
        for section, fields in recipe.model_dump().items()
        for field, value in fields.items()
        if value != defaults[section][field] and not follows.get(field, False)
    }
    return json.dumps(changed)
