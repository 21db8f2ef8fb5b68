"""The settings of a training are what differs from the defaults."""

import json

from regard.parts.settings import settings_of
from regard.recipe import Recipe


def test_only_what_differs_is_told() -> None:
    assert settings_of(Recipe()) == "{}"
    told = json.loads(settings_of(Recipe().but(heads=4, dropout=0.0)))
    assert told == {"heads": 4, "d_k": 128, "d_v": 128, "dropout": 0.0}
