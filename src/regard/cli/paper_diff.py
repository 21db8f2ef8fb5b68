"""`regard paper-diff`: lists departures from the paper, or from another code base."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.console import json_for_terminal
from regard.cli.options import SetOption
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.departures.case import Departure, Facts, Finding
    from regard.departures.distance import Distance
    from regard.recipe import Recipe

_HEADINGS = {
    "departs": "Departs from the paper",
    "unstated": "Cannot be known: the paper does not say",
    "unseen": "Cannot be known: {what} does not show",
}


def paper_diff(
    what: Annotated[
        str,
        typer.Argument(metavar="RECIPE|RUN|MODEL", help="A recipe, its file, a run or a model."),
    ],
    assignments: SetOption = None,
    row: Annotated[
        str | None,
        typer.Option(
            help="Compare with this recipe of the paper: base, A1, ..., wsj-semi. By default it is "
            "the one that is named, or else the closest."
        ),
    ] = None,
    against: Annotated[
        str, typer.Option(help="What to compare with: paper, t2t, fairseq or joeynmt.")
    ] = "paper",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what departs from the paper in a recipe, a run or a model.

    The recipe is compared with a row of the paper's tables, and the numbers that the paper prints
    for this row are shown. Unknowns are listed separately: questions that the paper leaves open,
    and questions that the recipe or the directory does not answer. With --against, the recipe is
    instead compared with the nearest usual setting of another code base.

    Examples:

    - `regard paper-diff base`
    - `regard paper-diff base --set data.layout=grouped --set training.precision=fp32`
    - `regard paper-diff runs/x --json`
    - `regard paper-diff runs/x --against fairseq`
    """
    recipe, facts, named = _subject(what, assignments or [])
    if against == "paper":
        _show_paper(what, recipe, facts, row or named, as_json)
        return
    if row is not None:
        raise RegardError("--row is a row of the paper: leave it out, or leave out --against")
    _show_usual(recipe, against, as_json)


def _subject(what: str, assignments: list[str]) -> "tuple[Recipe, Facts, str | None]":
    """A recipe, the known facts about its training, and the name of a row of the paper's tables.

    `what` is the name or the file of a recipe, or the directory of a run or a model. Facts are
    known only for a directory. The row is `what` if the tables have a row of this name, else None.
    Raises RegardError if `assignments`, the values of --set, are given for a directory, and the
    errors of `recipe_named`, `Recipe.set` and `recipe_and_facts`.
    """
    from regard.departures.distance import NO_FACTS
    from regard.measure.facts import recipe_and_facts
    from regard.paper import PAPER_RECIPES
    from regard.presets import RECIPES, recipe_named

    directory = Path(what)
    if what in RECIPES or not directory.is_dir():
        recipe = recipe_named(what).set(*assignments)
        return recipe, NO_FACTS, what if what in PAPER_RECIPES else None
    if assignments:
        raise RegardError(f"{what}: is a directory: --set goes with a recipe or its file")
    return *recipe_and_facts(directory), None


def _show_paper(
    what: str, recipe: "Recipe", facts: "Facts", row: str | None, as_json: bool
) -> None:
    from regard.departures.distance import NO_FACTS, departures_of
    from regard.departures.published import published, row_in_words

    made = departures_of(recipe, facts, row)
    kind = "a recipe" if facts is NO_FACTS else "this directory"
    if as_json:
        typer.echo(json_for_terminal(_as_json(what, made)))
        return
    rows = [("Compared with", made.row)]
    if made.closest != made.row:
        rows.append(("Closest to", made.closest))
    for relation, one in rows:
        typer.echo("\n  ".join([f"{relation} {one}: {row_in_words(one)}.", *published(one)]))
    for name, heading in _HEADINGS.items():
        found = made.of_kind(name)
        if found:
            typer.echo(f"\n{heading.format(what=kind)} ({len(found)})")
            _list(_COLUMNS[name], found)
        elif name == "departs":
            typer.echo("\nNothing departs from the paper, as far as it can be known.")


_COLUMNS = {
    "departs": ("the paper", "here"),
    "unstated": ("authors' code", "here"),
    "unseen": ("the paper", "not shown"),
}


def _list(names: tuple[str, str], found: "list[tuple[Departure, Finding]]") -> None:
    for departure, one in found:
        typer.echo(f"  {departure.name} ({departure.section})")
        paper = one.paper or (f"“{departure.quote}”" if departure.quote else "has no such thing")
        theirs = departure.theirs if one.kind == "unstated" else paper
        for name, text in zip(names, (theirs, one.here or departure.ours), strict=True):
            typer.echo(f"    {name:<15}{text}")


def _as_json(what: str, made: "Distance") -> dict[str, Any]:
    from regard.departures.published import published, row_in_words

    def entry(departure: "Departure", one: "Finding") -> dict[str, Any]:
        return {
            "name": departure.name,
            "section": departure.section,
            "quote": departure.quote,
            "paper": one.paper,
            "here": one.here or departure.ours,
            "authors_code": departure.theirs,
            "why": departure.why,
            "fields": departure.fields,
            "tests": departure.tests,
        }

    kinds = {name: [entry(*found) for found in made.of_kind(name)] for name in _HEADINGS}
    return {
        "of": what,
        "against": "paper",
        "row": made.row,
        "published": published(made.row),
        "closest": {
            "row": made.closest,
            "is": row_in_words(made.closest),
            "published": published(made.closest),
        },
        **kinds,
    }


def _show_usual(recipe: "Recipe", code_base: str, as_json: bool) -> None:
    from regard.departures.usual import against

    usual, fields = against(recipe, code_base)
    if as_json:
        shown = {
            "against": usual.name,
            "source": usual.source,
            "fields": [one._asdict() for one in fields],
            "beyond": [one._asdict() for one in usual.beyond],
        }
        typer.echo(json_for_terminal(shown))
        return
    typer.echo(f"Compared with {usual.name} ({usual.source}).")
    rows = [(one.field, json.dumps(one.theirs), json.dumps(one.ours)) for one in fields]
    typer.echo(f"\nFields of the recipe that differ ({len(rows)})")
    _print_rows(rows)
    typer.echo(f"\nWhat no field says ({len(usual.beyond)})")
    _print_rows(usual.beyond)


def _print_rows(rows: Sequence[tuple[str, str, str]]) -> None:
    for subject, theirs, ours in rows:
        typer.echo(f"  {subject}\n    {'theirs':<10}{theirs}\n    {'here':<10}{ours}")
