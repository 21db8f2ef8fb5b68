"""The settings of a training are what differs from the defaults."""

import json

from regard.parts.settings import settings_of
from regard.recipe import Recipe


def test_only_what_differs_is_told() -> None:
    assert settings_of(Recipe()) == "{}"
    told = json.loads(settings_of(Recipe().but(heads=4, dropout=0.0)))
    assert told == {"heads": 4, "d_k": 128, "d_v": 128, "dropout": 0.0}


def test_a_decoder_of_its_own_is_told_where_its_encoder_is_not_the_usual_one() -> None:
    same, other = Recipe().but(heads=4), Recipe().but(heads=4, decoder_heads=8)
    assert same != other
    assert json.loads(settings_of(other)) == {**json.loads(settings_of(same)), "decoder_heads": 8}
    assert json.loads(settings_of(Recipe().but(decoder_d_ff=8))) == {"decoder_d_ff": 8}
