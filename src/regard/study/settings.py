"""The settings of a training, by which its kept numbers are known."""

import json

from regard.recipe import Recipe


def settings_of(recipe: Recipe) -> str:
    """All fields of a recipe that differ from the defaults, as JSON.

    A field that a later version adds changes nothing while it has its default, or follows another.
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
