"""The corpus of a demo: what it learns from, what it is tested on, and whether it was begun."""

from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RecipeError

if TYPE_CHECKING:
    from regard.corpus import Example
    from regard.recipe import Recipe

TRAIN_SEED, VALID_SEED, TEST_SEED = 1, 2, 3
VALID_SENTENCES, TEST_SENTENCES = 500, 1000


def write_text(folder: Path, pairs: int) -> None:
    """Write train.en, train.de, valid.en and valid.de, with `pairs` lines to train on."""
    from regard.corpus import write_corpus

    write_corpus(folder / "train", TRAIN_SEED, pairs)
    write_corpus(folder / "valid", VALID_SEED, VALID_SENTENCES)


def write_trees(folder: Path, trees: int) -> None:
    """Write train.mrg and valid.mrg, with this many trees to train on."""
    from regard.corpus import example
    from regard.files.whole import write_file

    folder.mkdir(parents=True, exist_ok=True)
    for name, seed, count in (("train", TRAIN_SEED, trees), ("valid", VALID_SEED, VALID_SENTENCES)):
        lines = (f"( {example(seed, i).tree})\n" for i in range(count))
        write_file(folder / f"{name}.mrg", "".join(lines))


def unseen() -> "list[Example]":
    """The examples to test on."""
    from regard.corpus import example

    return [example(TEST_SEED, i) for i in range(TEST_SENTENCES)]


def was_begun(out: Path, recipe: "Recipe", pairs: int) -> bool:
    """Whether `out` holds this demo, begun earlier; raises RecipeError if it holds another run."""
    from regard.data.pairs import prepared_manifest
    from regard.run.beginning import begun, differences

    earlier = begun(out)
    if earlier is None:
        return False
    if changes := differences(earlier, recipe):
        more = "" if len(changes) == 1 else f" and {len(changes) - 1} more"
        raise RecipeError(f"{out}: holds another run ({changes[0]}{more}): choose another --out")
    original = prepared_manifest(out / "data")["counts"]["train"]["read"]
    if original != pairs:
        raise RecipeError(f"{out}: was begun with --pairs {original}: choose another --out")
    return True
