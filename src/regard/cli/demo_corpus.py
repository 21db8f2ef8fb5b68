"""The corpus of `regard demo`: files for training, and examples for testing the trained model."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from regard.errors import DataError, RecipeError

if TYPE_CHECKING:
    from regard.corpus import Example
    from regard.inputs import TrainingFiles
    from regard.recipe import Recipe

TRAIN_SEED, VALID_SEED, TEST_SEED = 1, 2, 3
VALID_SENTENCES, TEST_SENTENCES = 500, 1000


class Shown(NamedTuple):
    """The results of the demo's model on the test examples, and commands to try next."""

    measured: dict[str, float]
    """The results; each key is the name of a result in result.json."""
    figures: dict[str, str]
    """The results as texts to print; each key is the printed name of a result."""
    commands: list[str]
    """Commands to try next."""


def write_text(folder: Path, pairs: int) -> "TrainingFiles":
    """Write train.en, train.de, valid.en and valid.de into `folder`; return their paths.

    Each training file has `pairs` lines. Raises DataError if one of these files exists already and
    its first line differs from that of a demo's file. Raises RegardError if a file cannot be
    written.
    """
    from regard.corpus import example, write_corpus
    from regard.inputs import TrainingFiles

    for name, seed in (("train", TRAIN_SEED), ("valid", VALID_SEED)):
        first = example(seed, 0)
        _refuse_other_text(folder / f"{name}.en", first.source)
        _refuse_other_text(folder / f"{name}.de", first.target)
    write_corpus(folder / "train", TRAIN_SEED, pairs)
    write_corpus(folder / "valid", VALID_SEED, VALID_SENTENCES)
    return TrainingFiles(
        [folder / "train.en"], [folder / "train.de"], [folder / "valid.en"], [folder / "valid.de"]
    )


def write_trees(folder: Path, trees: int) -> "TrainingFiles":
    """Write train.mrg, with `trees` trees, and valid.mrg into `folder`; return their paths.

    Raises DataError if one of these files exists already and its first line differs from that of a
    demo's file. Raises RegardError if a file cannot be written.
    """
    from regard.corpus import example, write_treebank
    from regard.inputs import TrainingFiles

    parts = ("train", TRAIN_SEED, trees), ("valid", VALID_SEED, VALID_SENTENCES)
    for name, seed, _ in parts:
        _refuse_other_text(folder / f"{name}.mrg", f"( {example(seed, 0).tree})")
    for name, seed, count in parts:
        write_treebank(folder / f"{name}.mrg", seed, count)
    return TrainingFiles(trees=[folder / "train.mrg"], valid_trees=[folder / "valid.mrg"])


def _refuse_other_text(path: Path, first: str) -> None:
    """Raise DataError if the file `path` exists and its first line is not `first`.

    `first` is the first line of a demo's file. A file that an interrupted demo left may be
    replaced; a file of the user may not.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        if file.readline() != f"{first}\n".encode():
            raise DataError("is not empty: choose another --out", path.parent)


def unseen() -> "list[Example]":
    """The test examples: sentence pairs, and the tree of each English sentence.

    They are made with another seed than the training pairs. None of them is in training files of
    the default size.
    """
    from regard.corpus import example

    return [example(TEST_SEED, i) for i in range(TEST_SENTENCES)]


def was_begun(out: Path, recipe: "Recipe", pairs: int) -> bool:
    """Whether an earlier command began this demo in `out`.

    Raises RecipeError if `out` holds a run with another recipe or another number of pairs. The
    section [search] of the recipe may differ, because `regard tune` changes it. Raises DataError if
    the run's prepared data is missing or damaged, and the errors of `begun`.
    """
    from regard.data.pairs import prepared_manifest
    from regard.recipe import changes
    from regard.run.beginning import begun

    earlier = begun(out)
    if earlier is None:
        return False
    changed = [one for one in changes(earlier, recipe) if not one.field.startswith("search.")]
    if changed:
        more = "" if len(changed) == 1 else f" and {len(changed) - 1} more"
        raise RecipeError(f"{out}: holds another run ({changed[0]}{more}): choose another --out")
    original = prepared_manifest(out / "data")["counts"]["train"]["read"]
    if original != pairs:
        raise RecipeError(f"{out}: was begun with --pairs {original}: choose another --out")
    return True
