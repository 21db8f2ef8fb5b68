"""Which row of the paper a recipe is compared with, and what a run shows besides its recipe."""

from dataclasses import replace

import pytest

from regard.departures.case import Facts
from regard.departures.distance import closest_row, departures_of
from regard.errors import RecipeError
from regard.paper import BASE, PAPER_RECIPES, TABLE_3
from regard.presets import SMALL_PARSE
from regard.recipe import Recipe

EXACT = BASE.but(layout="grouped", precision="fp32")
AS_PUBLISHED = Facts(
    vocabulary=37_000,
    pairs=4_480_000,
    sample=1.0,
    held_out=0,
    dtype="float32",
    steps=100_000,
    averaged=(94_000, 95_500, 97_000, 98_500, 100_000),
    tuned=False,
    begins_with_model=False,
)
"""Everything as in the paper, except the machine."""


def departing(recipe: Recipe, facts: Facts = AS_PUBLISHED, row: str | None = None) -> list[str]:
    return [one.name for one, _ in departures_of(recipe, facts, row).of_kind("departs")]


@pytest.mark.parametrize("row", PAPER_RECIPES)
def test_a_recipe_of_the_paper_is_closest_to_itself(row: str) -> None:
    assert closest_row(PAPER_RECIPES[row]) == row
    assert closest_row(PAPER_RECIPES[row].but(seed=7, precision="fp32", layout="grouped")) == row


def test_closeness_is_a_matter_of_size() -> None:
    assert closest_row(BASE.but(layers=5)) == "base"
    assert closest_row(BASE.but(layers=3)) == "C2"
    assert closest_row(BASE.but(d_ff=7000)) == "C7"
    assert closest_row(SMALL_PARSE) in ("wsj", "wsj-semi")


@pytest.mark.parametrize("row", TABLE_3)
def test_a_row_of_table_3_departs_in_its_averaging_only(row: str) -> None:
    exact = TABLE_3[row].but(layout="grouped", precision="fp32")
    expected = [] if row in ("base", "big") else ["averaging"]
    assert departing(exact, Facts()) == expected
    if expected:
        assert departing(exact.but(average=1), Facts()) == []


@pytest.mark.parametrize(("row", "units"), [("base", "pairs"), ("wsj", "trees")])
def test_a_finding_tells_the_part_of_the_text_in_its_units(row: str, units: str) -> None:
    def here(name: str, facts: Facts) -> str:
        found = departures_of(PAPER_RECIPES[row], facts, row).found
        [text] = (finding.here for departure, finding in found if departure.name == name)
        return text

    sample = "sample for the sub-words"
    assert here(sample, Facts(sample=0.999)) == f"sub-words are learned from 99 % of the {units}"
    assert here(sample, Facts(sample=0.125)) == f"sub-words are learned from 12 % of the {units}"
    kept = here("development set", Facts(held_out=1000))
    assert kept == f"1,000 {units} of the training text are held out"


def test_what_was_averaged_counts_and_not_what_the_recipe_asks_for() -> None:
    """As after `regard average --last 1`."""
    exact = TABLE_3["A1"].but(layout="grouped", precision="fp32")
    assert departing(exact, replace(AS_PUBLISHED, averaged=(100_000,))) == []


def test_a_row_can_be_named() -> None:
    found = departures_of(TABLE_3["D2"], row="base")
    assert (found.row, found.closest) == ("base", "D2")
    assert "dropout" in departing(TABLE_3["D2"], Facts(), "base")
    assert "dropout" not in departing(TABLE_3["D2"], Facts())
    with pytest.raises(RecipeError, match=r"unknown row D22: did you mean D2\?"):
        departures_of(EXACT, row="D22")


def test_a_run_as_published_departs_in_nothing() -> None:
    assert departing(EXACT) == []


@pytest.mark.parametrize(
    ("facts", "name", "here"),
    [
        ({"vocabulary": 29_511}, "sub-words", "29,511 entries"),
        ({"pairs": 20_000}, "text", "20,000 of them"),
        ({"sample": 0.22}, "sample for the sub-words", "sub-words are learned from 22 %"),
        ({"mix": (3, 1)}, "mixture of texts", "--mix 3,1"),
        ({"held_out": 1000}, "development set", "1,000 pairs of the training text"),
        ({"dtype": "bfloat16"}, "precision", "bfloat16"),
        ({"dtype": "int8 and bfloat16"}, "precision", "int8 and bfloat16"),
        ({"device": "cpu"}, "hardware", "cpu"),
        ({"steps": 4000}, "duration", "4,000 steps were made"),
        ({"averaged": (98_000, 100_000)}, "averaging", "the mean of 2: steps 98,000, 100,000"),
        (
            {"averaged": (20_000, 40_000, 60_000, 80_000, 100_000)},
            "spacing of checkpoints",
            "the averaged ones are 20,000 steps apart",
        ),
        ({"tuned": True}, "beam and length penalty", "chosen for this model"),
        ({"begins_with_model": True}, "first weights", ""),
    ],
)
def test_what_a_run_shows_is_named(facts: dict[str, object], name: str, here: str) -> None:
    shown = {slot: getattr(AS_PUBLISHED, slot) for slot in Facts.__slots__} | facts
    found = departures_of(EXACT, Facts(**shown)).of_kind("departs")
    assert [(one.name, here in finding.here) for one, finding in found if one.name == name] == [
        (name, True)
    ]
    assert {one.name for one, _ in found} <= {name, "spacing of checkpoints"}


def test_fp32_that_was_chosen_by_the_machine_is_as_published() -> None:
    assert departing(EXACT.but(precision="auto")) == []


def test_a_step_is_as_large_however_it_is_divided() -> None:
    parts = EXACT.but(source_tokens=5000, target_tokens=5000, accumulate=5)
    assert departing(parts) == []
    assert departing(parts.but(accumulate=4)) == ["size of a batch"]
