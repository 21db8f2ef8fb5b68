"""The row of the paper's tables that is closest to a recipe, and the departures from a row."""

from math import log2
from typing import NamedTuple

from regard.departures.case import Compared, Departure, Facts, Finding
from regard.departures.table import CANNOT_DEPART, DEPARTURES
from regard.errors import unknown
from regard.paper import PAPER_RECIPES
from regard.recipe import Change, Recipe, changes

NO_FACTS = Facts()


class Distance(NamedTuple):
    """How a recipe departs from a row of the paper's tables: the result of `departures_of`."""

    row: str
    """The row of the paper's tables that the recipe was compared with: a key of `PAPER_RECIPES`."""
    closest: str
    """The row whose recipe is nearest to the judged recipe; `row` may be another row."""
    found: tuple[tuple[Departure, Finding], ...]
    """Each departure that has a finding for the recipe, with this finding."""

    def of_kind(self, kind: str) -> list[tuple[Departure, Finding]]:
        """The departures whose findings are of a kind ("departs", "unstated", "unseen").

        Each comes with its finding, in the order of `DEPARTURES`: model, data, training, results.
        """
        return [(departure, one) for departure, one in self.found if one.kind == kind]


def departures_of(recipe: Recipe, facts: Facts = NO_FACTS, row: str | None = None) -> Distance:
    """Find every departure of a recipe, and of the known facts of its run, from the paper.

    The recipe is compared with one of the paper's recipes: the one that `row` names or, if `row` is
    None, the closest one.
    Raises RecipeError for an unknown row.
    """
    if row is not None and row not in PAPER_RECIPES:
        raise unknown("row", row, list(PAPER_RECIPES))
    closest = closest_row(recipe)
    case = Compared(recipe, row or closest, facts)
    judged = ((departure, departure.judge.finding(case)) for departure in DEPARTURES)
    return Distance(case.row, closest, tuple((d, found) for d, found in judged if found))


def closest_row(recipe: Recipe) -> str:
    """The name of the paper's recipe for the same task that is nearest to `recipe`.

    The distance of two recipes is a sum over the fields that differ, except those of CANNOT_DEPART.
    A field whose two values are numbers other than 0 adds |log2(ratio of the numbers)|; any other
    field adds 1. If several recipes are equally near, the first in `PAPER_RECIPES` is taken.
    """
    rows = {n: one for n, one in PAPER_RECIPES.items() if one.task.output == recipe.task.output}
    return min(rows, key=lambda name: _how_far(rows[name], recipe))


def _how_far(before: Recipe, after: Recipe) -> float:
    total = 0.0
    for _, old, new in departing(before, after):
        are_sizes = isinstance(old, int | float) and isinstance(new, int | float) and old and new
        total += abs(log2(new / old)) if are_sizes else 1
    return total


def departing(before: Recipe, after: Recipe) -> list[Change]:
    """The changes from one recipe to another, except in fields of CANNOT_DEPART."""
    return [change for change in changes(before, after) if change.field not in CANNOT_DEPART]
