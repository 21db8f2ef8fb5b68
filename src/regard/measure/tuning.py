"""§6.1: beam and length penalty "were chosen after experimentation on the development set"."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.errors import DataError
from regard.files.lines import read_lines
from regard.files.manifest import SEAL
from regard.recipe import BleuTokenizer
from regard.run.clock import TUNING
from regard.run.model_directory import open_model, write_model
from regard.run.run import Run
from regard.score.bleu import bleu
from regard.translation import Translator, load

ALPHAS = (0.0, 0.3, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0)
"""Length penalties, tried with the recipe's beam: larger ones than its own while BLEU rises, or if
it does not, smaller ones."""
BEAMS = (8, 6, 12)
"""Beams, tried with the best length penalty."""


class Tried(NamedTuple):
    """BLEU of the development set by one setting of the search."""

    beam: int
    alpha: float
    bleu: float


def try_searches(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    tokenizer: BleuTokenizer,
    *,
    seconds: float = float("inf"),
    heard: Callable[[Tried], object] = lambda _: None,
) -> list[Tried]:
    """Translate the development set by several beams and length penalties; the best comes first.

    The translator's own setting is tried first, so it is kept where no other has a higher BLEU
    (sacreBLEU's, with `tokenizer`). Another setting is only tried if it is expected to be done
    within `seconds`. `heard` is called with each result. The translator is left as it was.
    """
    own, began = translator.recipe, time.monotonic()
    tried: list[Tried] = []

    def is_better(beam: int, alpha: float) -> bool:
        spent = time.monotonic() - began
        slower = max(1.0, beam / own.beam)
        late = bool(tried) and spent + slower * spent / len(tried) > seconds
        if late or any((beam, alpha) == one[:2] for one in tried):
            return False
        translator.recipe = own.but(beam=beam, alpha=alpha)
        outputs = translator.translate(sources, split=True)
        tried.append(Tried(beam, alpha, bleu(outputs, [list(references)], tokenizer)))
        heard(tried[-1])
        return _best(tried) is tried[-1]

    try:
        is_better(own.beam, own.alpha)
        larger = [alpha for alpha in ALPHAS if alpha > own.alpha]
        smaller = [alpha for alpha in reversed(ALPHAS) if alpha < own.alpha]
        for side in (larger, smaller):
            if _best(tried).alpha == own.alpha:
                all(is_better(own.beam, alpha) for alpha in side)  # ends with the first worse one
        for beam in BEAMS:
            is_better(beam, _best(tried).alpha)
    finally:
        translator.recipe = own
    best = _best(tried)
    return [best, *(one for one in tried if one != best)]


def _best(tried: Sequence[Tried]) -> Tried:
    return max(tried, key=lambda one: one.bleu)  # the first of equal ones


def keep_best(directory: Path, tried: Sequence[Tried]) -> None:
    """Write the first of `tried` into the model's recipe, and all of them into its manifest.

    Raises ModelError if the directory does not hold a model, RegardError if it cannot be written.
    """
    model = open_model(directory)
    beam, alpha, _ = tried[0]
    recipe = model.recipe.but(beam=beam, alpha=alpha)
    about = {key: value for key, value in model.manifest.items() if key not in SEAL}
    about["tuned"] = [one._asdict() for one in tried]
    weights = {name: weight.detach() for name, weight in model.transformer.named_parameters()}
    write_model(directory, recipe, model.tokenizer, weights, about)


def tune_run(run: Run) -> None:
    """Tune the model of a finished run on the validation set, and write into its journal how.

    It takes the share TUNING of the run's minutes, if these are limited.
    """
    directory, data = run.directory.path, run.setup.data
    recipe = run.setup.recipe.training
    sources, references = (
        list(read_lines(data / f"valid.{side}.txt")) for side in ("source", "target")
    )
    seconds = 60 * recipe.minutes * TUNING if recipe.minutes else float("inf")
    tried = try_searches(
        load(directory), sources, references, recipe.bleu_tokenizer, seconds=seconds
    )
    keep_best(directory, tried)
    run.journal.write("tuned", tried=[one._asdict() for one in tried])


def refuse_unaligned(
    source: Path, sources: Sequence[str], reference: Path, references: Sequence[str]
) -> None:
    """Raise DataError if the two files are empty, or have not equally many lines."""
    if len(sources) != len(references) or not sources:
        raise DataError(
            f"has {len(references):,} lines, and {source} has {len(sources):,}: give a development "
            "set whose lines correspond",
            reference,
        )
