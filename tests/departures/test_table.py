"""Every field of a recipe is judged by a departure, or cannot be one."""

from pathlib import Path
from typing import Any, get_args

import pytest

from regard.departures.case import value
from regard.departures.distance import departures_of
from regard.departures.table import CANNOT_DEPART, DEPARTURES
from regard.errors import RecipeError
from regard.paper import BASE, TABLE_3
from regard.recipe import Recipe, changes
from regard.trainer import train_prepared
from run.copying import RECIPE, prepared

ROOT = Path(__file__).parents[2]
EXACT = BASE.but(layout="grouped", precision="fp32")
"""Base as the paper has it."""
STARTS = {
    "data.row_length": ("base", BASE),  # grouped batches have no rows
    "model.max_positions": ("E", TABLE_3["E"]),  # sinusoids have no table
    "model.kernel": ("base", EXACT.but(family="convolutional")),  # a Transformer has no kernel
    "training.weight_decay": ("base", EXACT.but(optimizer="muon")),  # Adam has no decay
}
"""The row and the recipe of it in which a field has an effect, where the exact base has none."""
FIELDS = [f"{name}.{field}" for name, section in Recipe() for field, _ in section]
UNSTATED = ["training.seed"]
"""Fields of which no value is the paper's."""


def others(old: Any, choices: tuple[Any, ...]) -> list[Any]:
    """Values other than the old one, the first valid one of which is to be used."""
    if isinstance(old, bool):
        return [not old]
    if isinstance(old, str):
        return [one for one in choices if one != old]
    if isinstance(old, int):
        return [2 * old or 1, old // 2, old - 1]
    return [old / 2 or 0.5]


def changed(recipe: Recipe, field: str) -> Recipe:
    """The recipe with another valid value of a field."""
    section, _, key = field.partition(".")
    annotation = type(getattr(recipe, section)).model_fields[key].annotation
    for new in others(value(recipe, field), get_args(annotation)):
        try:
            return recipe.merged({section: {key: new}})
        except RecipeError:
            continue
    raise AssertionError(f"{field} cannot be changed")


def test_every_field_is_judged_or_cannot_depart() -> None:
    """A new field of a recipe needs a departure in `regard.departures`, or a reason for none."""
    judged = {field for departure in DEPARTURES for field in departure.fields}
    assert judged | CANNOT_DEPART.keys() == set(FIELDS)
    assert not judged & CANNOT_DEPART.keys()


@pytest.mark.parametrize("field", [field for field in FIELDS if field not in CANNOT_DEPART])
def test_a_changed_value_is_named(field: str) -> None:
    row, start = STARTS.get(field, ("base", EXACT))
    planted = changed(start, field)
    found = departures_of(planted, row=row).of_kind("unstated" if field in UNSTATED else "departs")
    named = [departure for departure, one in found if f"{field} = " in one.here]
    assert named, f"{field} is judged by none of what departs: {found}"
    assert all(field in departure.fields for departure in named)


@pytest.mark.parametrize("field", CANNOT_DEPART)
def test_what_cannot_depart_is_not_named(field: str) -> None:
    assert departures_of(changed(EXACT, field)) == departures_of(EXACT)


def test_what_cannot_depart_does_not_change_a_model(tmp_path: Path) -> None:
    """Other ways to compute are left out: they round otherwise, and draw other masks."""
    base = RECIPE.but(keep=10)
    other = base
    for field in CANNOT_DEPART.keys() - {"training.arithmetic"}:
        other = changed(other, field)
    assert len(changes(base, other)) == 5
    data, weights = prepared(tmp_path), []
    for name, recipe in (("base", base), ("other", other)):
        train_prepared(recipe, data, tmp_path / name)
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_the_exact_base_departs_in_nothing() -> None:
    found = departures_of(EXACT)
    assert (found.row, found.closest) == ("base", "base")
    assert found.of_kind("departs") == []
    assert found.of_kind("unstated")
    assert found.of_kind("unseen")


@pytest.mark.parametrize("departure", DEPARTURES, ids=lambda departure: departure.name)
def test_a_departure_is_complete(departure: Any) -> None:
    assert all((departure.section.startswith("§"), departure.theirs, departure.ours, departure.why))
    assert departure.tests
    for path in departure.tests:
        assert (ROOT / path).is_file(), path
    assert set(departure.fields) <= set(FIELDS)


def test_names_are_unique() -> None:
    assert len({departure.name for departure in DEPARTURES}) == len(DEPARTURES)
