"""The usual settings of other code bases."""

import pytest

from regard.departures.case import value
from regard.departures.usual import USUAL, against
from regard.errors import RecipeError
from regard.paper import BASE, BIG
from regard.recipe import Recipe
from regard.schedule import learning_rate

SETTINGS = [one for ones in USUAL.values() for one in ones]


@pytest.mark.parametrize("usual", SETTINGS, ids=lambda usual: usual.name)
def test_a_setting_is_a_recipe(usual: object) -> None:
    """Its fields and values are those that a recipe may have, and nothing differs from itself."""
    sections: dict[str, dict[str, object]] = {}
    for field, theirs in usual.fields.items():  # type: ignore[attr-defined]
        section, _, key = field.partition(".")
        sections.setdefault(section, {})[key] = theirs
    recipe = Recipe().merged(sections)
    [code_base] = [name for name, ones in USUAL.items() if usual in ones]
    assert against(recipe, code_base) == (usual, [])
    for field in usual.fields:  # type: ignore[attr-defined]
        assert value(recipe, field) == usual.fields[field]  # type: ignore[attr-defined]


def test_t2t_today_is_not_the_paper() -> None:
    usual, found = against(BASE, "t2t")
    assert usual.name.endswith("transformer_base")
    differing = {one.field: (one.theirs, one.ours) for one in found}
    assert differing["training.rate"] == (2.0, 1.0)
    assert differing["training.warmup_steps"] == (8000, 4000)
    assert differing["training.beta2"] == (0.997, 0.98)
    assert differing["model.attention_dropout"] == differing["model.relu_dropout"] == (0.1, 0.0)
    assert "model.d_model" not in differing
    assert differing["model.norm"] == ("pre", "post")
    assert "sinusoids" in [one.subject for one in usual.beyond]
    assert against(BIG, "t2t")[0].name.endswith("transformer_big")


def test_the_rate_of_fairseq_is_a_factor_of_the_papers() -> None:
    """Its rate is 0.0005 where the warm-up ends, for both sizes."""
    for usual, d_model in zip(USUAL["fairseq"], (512, 1024), strict=True):
        factor = usual.fields["training.rate"]
        assert learning_rate(4000, d_model, 4000, factor) == pytest.approx(0.0005, rel=1e-3)


def test_an_unknown_code_base_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"unknown code base fairsek: did you mean fairseq\?"):
        against(BASE, "fairsek")
