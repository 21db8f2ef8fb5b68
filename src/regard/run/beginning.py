"""What a run directory was begun with: a recipe and a tokenizer, to which it stays."""

from collections.abc import Collection
from pathlib import Path

from regard.errors import ModelError, RecipeError, RegardError
from regard.files.whole import refusing_write_errors, write_file
from regard.recipe import Recipe


def begun(directory: Path) -> Recipe | None:
    """The recipe that a run directory was begun with, or None for a new one."""
    if directory.exists() and not directory.is_dir():
        raise RegardError(f"{directory}: is a file: name a run directory")
    if (directory / "train.source.ids.npy").exists():
        raise RegardError(f"{directory}: is prepared data: name another directory for the run")
    path = directory / "recipe.toml"
    return Recipe.read(path) if path.exists() else None


def refuse_another_recipe(directory: Path, recipe: Recipe) -> None:
    """Raise RecipeError, with the differences, where the directory was begun with another."""
    earlier = begun(directory)
    if earlier and (changes := differences(earlier, recipe)):
        raise RecipeError(
            f"{directory}: was begun with another recipe ({'; '.join(changes)}): choose another "
            "--out, or go on knowingly with --accept-changes"
        )


def differences(before: Recipe, after: Recipe) -> list[str]:
    """`section.key: old -> new` for each field in which two recipes differ."""
    old, new = before.model_dump(), after.model_dump()
    return [
        f"{section}.{key}: {old[section][key]} -> {value}"
        for section, fields in new.items()
        for key, value in fields.items()
        if old[section][key] != value
    ]


def keep_beginning(directory: Path, recipe: Recipe, data: Path) -> None:
    """Write what differs; a finished model of before is then no longer one."""
    wanted = {
        "recipe.toml": recipe.to_toml().encode(),
        "tokenizer.json": (data / "tokenizer.json").read_bytes(),
    }
    for name, content in wanted.items():
        path = directory / name
        if not path.exists() or path.read_bytes() != content:
            with refusing_write_errors(path):
                (directory / "manifest.json").unlink(missing_ok=True)
            write_file(path, content)


def changed_shape(directory: Path, recipe: Recipe) -> str:
    """What of the model the run was begun with otherwise; empty if nothing."""
    before = begun(directory) or recipe
    return ", ".join(what for what in differences(before, recipe) if what.startswith("model."))


def refuse_changed(changed: Collection[str], checkpoint: Path, *, knowingly: bool) -> None:
    """Raise ModelError where the tokenizer has changed, or the data unless `knowingly`."""
    if "tokenizer" in changed:  # its pieces are what the weights have been learned for
        raise ModelError(
            f"{checkpoint}: the tokenizer changed since this run began, as it does when other text "
            "is prepared: put it back, or choose another --out"
        )
    if changed and not knowingly:
        raise ModelError(
            f"{checkpoint}: the data changed since this run began: put it back, choose another "
            "--out, or go on knowingly with --accept-changes"
        )
