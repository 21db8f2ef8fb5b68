"""Several runs that differ only in their seeds, for an ensemble or a comparison."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from regard.budget.choice import with_time
from regard.data.pairs import recipe_of
from regard.errors import RecipeError, RegardError
from regard.inputs import assigned
from regard.recipe import Recipe, assigned_field
from regard.run.beginning import begun, is_of_members
from regard.run.journal import read_journal
from regard.start import MINUTES, Start


def members(start: Start, count: int) -> Iterator[Start]:
    """Yield the starts of `count` runs, which differ only in their seeds and directories.

    The runs are in seed-1, seed-2 and so on, in `start.out`. They share a time limit equally. This
    is the limit of `start`. If `start` has none, it is the limit in the recipe that the first run
    takes from --from or --data. If there is no limit, and the first run chooses its recipe for the
    text, the runs share MINUTES (60).

    The other runs use the data, the tokenizer and the recipe of the first run, so the first run
    must have begun before another run begins. Raises RecipeError if `start` assigns a seed or a
    limit of minutes, RegardError if `start.out` is itself a run, DataError if --data is not
    prepared data, and the errors of `begun` and `recipe_named`.
    """
    if "training.seed" in map(assigned_field, start.assignments):
        raise RecipeError("--seeds counts the seeds from 1: leave out --set training.seed")
    if assigned(start.assignments, "training.minutes"):
        raise RecipeError("--seeds divides the time: give --time, not --set training.minutes")
    if begun(start.out) is not None and not is_of_members(start.out):
        raise RegardError(f"{start.out}: was begun without --seeds: choose another --out")
    first = start.out / "seed-1"
    chooses = replace(start, out=first).chooses_for_text
    timed = start.limit or (MINUTES if chooses else None)
    if its := _timed_origin(start, first):
        timed = its.training.minutes
        start = replace(start, recipe=with_time(its, timed / count))
    minutes = timed and timed / count
    for seed in range(1, count + 1):
        changes = (*start.assignments, f"training.seed={seed}")
        if seed == 1:
            yield replace(start, out=first, assignments=changes, minutes=minutes)
            continue
        yield Start(
            start.out / f"seed-{seed}",
            data=start.data or first / "data",
            recipe=_untuned(first),
            assignments=changes,
            start_from=start.start_from,
            minutes=minutes,
        )


def alone(start: Start) -> Iterator[Start]:
    """Yield `start`, for a single run; raises RegardError if `start.out` has runs of --seeds."""
    out = start.out
    if begun(out) is None and is_of_members(out):
        raise RegardError(f"{out}: was begun with --seeds: give it again, or choose another --out")
    yield start


def _timed_origin(start: Start, first: Path) -> Recipe | None:
    """The recipe that the first run gets from --from or --data, if this recipe limits the time.

    Returns None otherwise, for example if `start` has a recipe or a time. Also returns None if the
    first run has begun already: this run then has a recipe of its own, with the divided time.
    """
    if start.recipe is not None or start.minutes is not None or begun(first) is not None:
        return None
    its = None
    if start.start_from is not None:
        path = start.start_from / "recipe.toml"
        if path.exists():  # a missing model is refused later
            its = Recipe.read(path).but(share=1.0)
    elif start.data is not None:
        its = recipe_of(start.data)
    return its if its and its.training.minutes else None


def _untuned(run: Path) -> Recipe | str:
    """The recipe of a run, with the beam and alpha from before the tuning of the search.

    A beam and alpha that were set after the tuning are kept. If the search was not tuned, returns
    the path of the recipe's file.
    """
    path, journal = run / "recipe.toml", run / "journal.jsonl"
    records = read_journal(journal) if journal.exists() else []
    tuned = [record for record in records if record["event"] == "tuned"]
    if not tuned:
        return str(path)
    recipe, chosen = Recipe.read(path), tuned[-1]["tried"][0]
    if (recipe.search.beam, recipe.search.alpha) != (chosen["beam"], chosen["alpha"]):
        return recipe  # other values were set after the tuning
    return recipe.but(**tuned[0].get("own", {}))
