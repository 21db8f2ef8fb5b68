"""Time the training of a model on this machine."""

import time
from statistics import median

import numpy as np

from regard.arithmetic.choose import choose_dtype
from regard.budget.text import SAMPLED, ParallelText
from regard.data.batches import BatchShare
from regard.data.pair_source import ArbitraryPairs
from regard.data.training_data import batches_of
from regard.errors import TrainingError
from regard.machine.compiled import forget_programs
from regard.machine.devices import (
    choose_device,
    random_numbers_kept,
    refuse_too_large,
    wait_for,
)
from regard.machine.processes import ALONE, OutOfMemory
from regard.paper import parameters
from regard.recipe import Recipe
from regard.run.sharding import model_and_optimizer
from regard.steps import steps_for
from regard.training import update

MOST_PARTS = 256
"""If memory is short, a timed step divides its batch into parts, but not into more than this."""
TIMED, LEAST_TIMED, MOST_TIMED = 3.0, 4, 12
"""Steps of a model are timed for about TIMED seconds. At least LEAST_TIMED steps are timed, even if
they take longer, and at most MOST_TIMED steps."""
RATE = 1e-4
"""The learning rate of timed steps. They learn from arbitrary sub-words; the model is discarded."""


def tokens_per_second(recipe: Recipe, corpus: ParallelText) -> float:
    """Time a few updates of a model; return how many target tokens it learns from in a second.

    The sentences have lengths as in the corpus, and arbitrary sub-words. The state of this
    process's random numbers is not changed. Raises TrainingError if the memory is too small, if
    no batch can hold a row, or if no GPU can be used; RecipeError if this machine cannot compute by
    the recipe's arithmetic and precision.
    """
    device = choose_device()
    dtype = choose_dtype(recipe.training.precision, device)
    target, source = corpus.target_and_source(recipe)
    refuse_too_large(parameters(recipe.model, target, source), device, 1)
    pairs = _arbitrary_pairs(corpus, recipe)
    with random_numbers_kept(device):
        model, optimizer = model_and_optimizer(recipe, target, dtype, device, ALONE, False, source)
        steps = steps_for(model, optimizer, recipe, device, dtype, lambda _: None)
        parts, speeds = 1, list[float]()
        begin = time.perf_counter()
        while len(speeds) < LEAST_TIMED or (
            len(speeds) < MOST_TIMED and time.perf_counter() - begin < TIMED
        ):
            batches = batches_of(pairs, recipe, BatchShare.even(0, 1, 1, parts)).take(1)
            began = time.perf_counter()
            try:
                loss = update(steps, optimizer, [batch.to(device) for batch in batches], RATE)
            except OutOfMemory:
                if parts == MOST_PARTS:
                    raise TrainingError("not even a part of a batch fits the memory") from None
                parts *= 2
                forget_programs(device)
                continue
            wait_for(device)
            speeds.append(loss.target_tokens / (time.perf_counter() - began))
        return median(speeds[len(speeds) // 3 :])  # the first steps also load code


def _arbitrary_pairs(corpus: ParallelText, recipe: Recipe) -> ArbitraryPairs:
    """Pairs of arbitrary sub-words; the lengths are estimated from the corpus's pairs."""
    most = min(recipe.data.max_length, recipe.data.row_length)
    lengths = np.array(corpus.lengths) / corpus.characters_per_token() + 1
    repeated = np.resize(lengths.astype(np.int32).clip(2, most), (SAMPLED * 4, 2))
    target, source = corpus.target_and_source(recipe)
    return ArbitraryPairs(repeated.T, (source, target))
