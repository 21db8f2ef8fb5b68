"""The training pairs of prepared data, and their batches as a recipe wants them."""

from pathlib import Path

from regard.data.batches import WHOLE, Batches, BatchShare
from regard.data.pair_source import PairSource
from regard.data.pairs import Pairs
from regard.data.subword_dropout import RedrawnPairs
from regard.errors import TrainingError
from regard.recipe import Recipe


def batches_of(pairs: PairSource, recipe: Recipe, share: BatchShare = WHOLE) -> Batches:
    """Batches of these pairs, with the seed, the layout and the limits of the recipe.

    `share` says which parts of the batches this process takes. Raises the errors of `Batches`:
    DataError if there are no pairs, TrainingError if a pair or a row is too large.
    """
    seed, layout, join = recipe.training.seed, recipe.data.layout, recipe.joins_pairs
    return Batches(pairs, recipe.data, seed, layout=layout, join=join, share=share)


def training_pairs(data: Path, recipe: Recipe) -> Pairs:
    """Open the training pairs in a directory of prepared data.

    Raises the errors of `RedrawnPairs.open` if the recipe has sub-word dropout, otherwise those of
    `Pairs.open`.
    """
    return (RedrawnPairs if recipe.data.subword_dropout else Pairs).open(data, "train")


def training_batches(
    data: Path, recipe: Recipe, share: BatchShare = WHOLE, fingerprint: str | None = None
) -> Batches:
    """Batches of the training pairs in a directory of prepared data.

    `share` says which parts of the batches this process takes. `fingerprint` is the checksum of the
    expected pairs; raises TrainingError if the directory has other pairs. With None, any pairs are
    accepted. Also raises the errors of `training_pairs` and `batches_of`.
    """
    pairs = training_pairs(data, recipe)
    if fingerprint not in (None, pairs.fingerprint):
        raise TrainingError(
            f"{data}: has other data than when this run began: prepare new data in a new directory"
        )
    return batches_of(pairs, recipe, share)
