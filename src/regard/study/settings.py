"""The settings of a training: its kept numbers are used only while these are equal."""

import json

from regard.recipe import Recipe


def settings_of(recipe: Recipe) -> str:
    """All fields of a recipe that differ from the defaults, as JSON.

    A field that a later version adds is not listed while it has its default or, as `decoder_heads`,
    equals the field that it follows.
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
