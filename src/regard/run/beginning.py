"""Keep the recipe and the tokenizer that a run directory was begun with; refuse changed ones."""

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from regard.amounts import SECONDS, amount
from regard.data.pairs import is_prepared
from regard.errors import InUse, ModelError, RecipeError, RegardError, TrainingError
from regard.files.locks import locked
from regard.files.manifest import MANIFEST, replace_file
from regard.files.whole import parents_made, refusing_write_errors, write_file
from regard.recipe import Change, Recipe, changes
from regard.text.opening import tokenizer_files


def begun(directory: Path) -> Recipe | None:
    """The recipe in a run directory; None if the directory has no recipe.toml.

    The run was begun, or last continued, with this recipe. Raises RegardError if the path is a
    file or prepared data, RecipeError if recipe.toml cannot be read or is damaged.
    """
    if directory.exists() and not directory.is_dir():
        raise RegardError(f"{directory}: is a file: name a run directory")
    if is_prepared(directory):
        raise RegardError(f"{directory}: is prepared data: name another directory for the run")
    path = directory / "recipe.toml"
    return Recipe.read(path) if path.exists() else None


def is_of_members(out: Path) -> bool:
    """Whether `out` holds the runs of a `regard train --seeds`."""
    return (out / "seed-1" / "recipe.toml").exists()


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Hold the lock of a run while its data is prepared.

    Raises InUse, before the block runs, if another process trains or prepares in `directory`, or
    has begun a run there and prepared its data. Raises RegardError if the directory cannot be
    written, and the errors of `begun`. A lock file that this function made is removed at the end;
    a directory that it made is removed after an exception, if the directory is empty.
    """
    lock = directory / ".lock"
    is_new = not lock.exists()
    with ExitStack() as removed_after_errors:
        with refusing_write_errors(directory):
            removed_after_errors.enter_context(parents_made(lock))
        with locked(lock, wait=False) as is_alone:
            if not is_alone:
                raise InUse(
                    f"{directory}: another process is at work here: wait for it, or choose another "
                    "--out"
                )
            if begun(directory) is not None and is_prepared(directory / "data"):
                raise InUse(
                    f"{directory}: another process has begun a run here meanwhile: give the "
                    "command again to continue it, or choose another --out"
                )
            try:
                yield
            finally:
                if is_new:
                    lock.unlink(missing_ok=True)


def refuse_another_recipe(directory: Path, recipe: Recipe) -> None:
    """Raise a RecipeError that names the changes, if `recipe_changes` returns any.

    Raises the errors of `begun`, too.
    """
    if changed := recipe_changes(directory, recipe):
        raise RecipeError(
            f"{directory}: was begun with another recipe ({'; '.join(map(str, changed))}): choose "
            "another --out, or continue knowingly with --accept-changes"
        )


def recipe_changes(directory: Path, recipe: Recipe) -> list[Change]:
    """The differences between the recipe of a run directory and `recipe`, the new recipe.

    The list is empty for a new directory. Two kinds of changes are allowed and left out of the
    list. A run may get another `training.minutes`, and then also other values of `validate_every`
    and `save_every`. The section [search] may change, because it has no influence on the weights.
    Raises the errors of `begun`.
    """
    earlier, its = begun(directory) or recipe, recipe.training
    timed = {"minutes": its.minutes}
    if its.minutes != earlier.training.minutes:
        timed |= {"validate_every": its.validate_every, "save_every": its.save_every}
    return changes(earlier.merged({"training": timed, "search": dict(recipe.search)}), recipe)


def refuse_less_time(
    directory: Path, earlier: Recipe, recipe: Recipe, seconds: float, ended: float
) -> None:
    """Raise TrainingError if the recipe's new time is too short for the run to continue.

    The run was begun, or last continued, with the recipe `earlier`. The newest checkpoint tells two
    numbers. Training has taken `seconds` so far. If the run ended because of a time limit, `ended`
    is this limit in minutes, even if the run ended a little earlier; otherwise, `ended` is 0. A new
    time is refused if the run has used it up, or if it is less than `ended`. An unchanged or
    unlimited time is never refused.
    """
    minutes = recipe.training.minutes
    if minutes == 0 or minutes == earlier.training.minutes:
        return
    if minutes < ended and 60 * minutes > seconds:
        raise TrainingError(
            f"{directory}: is over: a time of {amount(60 * ended, SECONDS)} was set, and training "
            f"ended after {amount(seconds, SECONDS)}: give more time than was set, or leave it out"
        )
    if 60 * minutes <= seconds:
        raise TrainingError(
            f"{directory}: has taken {amount(seconds, SECONDS)} already; --time is the time of the "
            "whole run, as is that of --recipe, and --seeds divides it: give more, or leave it out"
        )


def refuse_adam_after_muon(directory: Path, learned_by: str, recipe: Recipe) -> None:
    """Raise RecipeError if `recipe` has the optimizer Adam, but the run has learned by Muon.

    Adam divides by the root of a mean of squared gradients. Muon leaves this mean at 0 for the
    matrices that it trains, so Adam's first updates of these matrices would be far too large. Muon
    can continue a run of Adam. `learned_by` is the run's optimizer so far: "adam" or "muon".
    """
    if (learned_by, recipe.training.optimizer) == ("muon", "adam"):
        raise RecipeError(
            f"{directory}: has learned by Muon, and Adam cannot continue from its moments: keep "
            f"training.optimizer = muon, or begin a new run with --from {directory} and another "
            "--out"
        )


def keep_beginning(directory: Path, recipe: Recipe, data: Path) -> None:
    """Write `recipe` and the tokenizer of `data` into a run directory, unless they are there.

    A recipe.toml that means the same recipe is not replaced, even if its text differs: an older
    version of regard wrote fewer fields. Some changes leave a finished model in the directory valid
    until training has made a new model: changes of the section [search], and changes of `steps`,
    `minutes`, `validate_every` and `save_every` in the section [training]. The finished model keeps
    its own section [search], which may have been tuned. Before any other change, the model's
    manifest is removed, which makes the model invalid. Raises RegardError if a file cannot be
    written.
    """
    path, before, its = directory / "recipe.toml", begun(directory), recipe
    if before is not None and (directory / MANIFEST).exists():
        its = recipe.merged({"search": dict(before.search)})
    if before != its:
        longer = before is not None and _differ_in_length(before, its)
        if not (longer and replace_file(directory, path.name, its.to_toml().encode())):
            _replace(path, recipe.to_toml().encode())
    # tokenizer.json is written last: if it is there, the tokenizer's other files are there, too.
    for name in reversed(tokenizer_files(data)):
        path, content = directory / name, (data / name).read_bytes()
        if not path.exists() or path.read_bytes() != content:
            _replace(path, content)


def _differ_in_length(before: Recipe, recipe: Recipe) -> bool:
    """Whether two recipes differ at most in the length of training and in two intervals.

    The two intervals are `validate_every` and `save_every`.
    """
    names = ("minutes", "steps", "validate_every", "save_every")
    length = {name: getattr(recipe.training, name) for name in names}
    return before.merged({"training": length}) == recipe


def _replace(path: Path, content: bytes) -> None:
    with refusing_write_errors(path):
        path.with_name(MANIFEST).unlink(missing_ok=True)
    write_file(path, content)


def refuse_changed(changed: Collection[str], checkpoint: Path, *, knowingly: bool) -> None:
    """Raise ModelError if tokenizer, data or validation set changed after the checkpoint was saved.

    `changed` names what has changed: "tokenizer", "data", "validation". With `knowingly`, the
    data and the validation set may have changed, but not the tokenizer.
    """
    if "tokenizer" in changed:  # the weights were learned for the old tokenizer's pieces
        raise ModelError(
            f"{checkpoint}: the tokenizer changed since this run began, for example because other "
            "text was prepared: put the old tokenizer back, or choose another --out"
        )
    if changed and not knowingly:
        what = part_in_words(changed)
        raise ModelError(
            f"{checkpoint}: the {what} changed since this run began: put the old {what} back, "
            "choose another --out, or continue knowingly with --accept-changes"
        )


def part_in_words(changed: Collection[str]) -> str:
    """Return "data" if "data" is among the names of what has changed, else "validation set"."""
    return "data" if "data" in changed else "validation set"
