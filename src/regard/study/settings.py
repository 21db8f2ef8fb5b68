"""The settings of a training, by which its kept numbers are known."""

import json

from regard.recipe import Recipe


def settings_of(recipe: Recipe) -> str:
    """All fields of a recipe that differ from the defaults, as JSON.

    A field that a later version adds changes nothing while it has its default.
    """
    defaults = Recipe().model_dump()
    changed = {
        field: value
        for section, fields in recipe.model_dump().items()
        for field, value in fields.items()
        if value != defaults[section][field]
    }
    return json.dumps(changed)
