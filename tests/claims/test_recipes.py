"""Each training of a claim changes what its name says, and has as many parameters as it should."""

import pytest

from regard.claims.recipes import (
    CHANGES,
    RATIOS,
    SMALLEST,
    VOCABULARY,
    of_ratio,
    training_recipe,
)
from regard.claims.registry import CLAIMS
from regard.claims.trainings import Trained
from regard.paper import parameters
from regard.parts.settings import settings_of


def test_every_training_is_used_and_known() -> None:
    parts = (part for claim in CLAIMS.values() for part in claim.parts)
    assert {part.name for part in parts if isinstance(part, Trained)} == CHANGES.keys()


@pytest.mark.parametrize("ratio", RATIOS)
def test_ratios_have_equal_parameters(ratio: int) -> None:
    sizes = of_ratio(ratio)
    assert sizes["d_ff"] / sizes["d_model"] == pytest.approx(ratio, rel=0.2)
    found = parameters(training_recipe(f"ratio-{ratio}", 1, 10).model, VOCABULARY)
    assert found == pytest.approx(parameters(SMALLEST.model, VOCABULARY), rel=0.002)


def test_the_base_has_the_papers_proportions() -> None:
    model = SMALLEST.model
    assert model.d_ff == 4 * model.d_model
    assert (model.score, model.residual, model.causal) == ("scaled", True, True)
    assert SMALLEST.training.label_smoothing == 0.1
    assert SMALLEST.training.rate == 1


def test_settings_name_what_differs_and_not_the_seed() -> None:
    settings = {name: settings_of(training_recipe(name, 1, 1)) for name in CHANGES}
    assert len(set(settings.values())) == len(CHANGES)
    assert '"causal": false' in settings["no-mask"]
    assert "causal" not in settings["base"]


def test_a_variant_differs_from_base_in_its_fields_only() -> None:
    base, other = training_recipe("base", 3, 10), training_recipe("no-smoothing", 3, 10)
    assert other == base.but(label_smoothing=0.0)
