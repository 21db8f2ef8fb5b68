"""Choose beam and length penalty on the development set, as the paper's authors did.

§6.1: both "were chosen after experimentation on the development set". A run that tunes also chooses
on this set how many checkpoints are averaged (module `averages`).
"""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.amounts import count_of
from regard.errors import DataError
from regard.files.lines import read_lines, shown_name
from regard.files.manifest import read_manifest, replace_file, unseal
from regard.measure.averages import choose_average
from regard.recipe import MOST_STEPPED, BleuTokenizer, SearchRecipe
from regard.run.clock import tuning_seconds
from regard.run.journal import Journal, Record, read_journal
from regard.run.model_directory import recipe_in
from regard.run.run import Run
from regard.score.bleu import bleu
from regard.translation import Translator, load

ALPHAS = (0.0, 0.3, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0)
"""Values of alpha, the exponent of the length penalty, that are tried with the recipe's beam.
Values larger than the recipe's are tried first, in ascending order, for as long as BLEU rises. If
none of them is better than the recipe's, smaller values are tried in descending order, for as long
as BLEU rises."""
BEAMS = (8, 6, 12)
"""Beams that are tried with the chosen alpha, if the recipe's max_extra allows them."""

FEWEST, TRIED_FIRST, MANY_ENOUGH = 100, 30, 5
"""Beam and alpha are tuned only if at least FEWEST sentences can be used. If the run's time is
limited, TRIED_FIRST sentences are translated to measure the time of a sentence. The number of
sentences is then reduced until the time should be enough for MANY_ENOUGH settings."""
AVERAGES = 0.3
"""If the time for tuning is limited, about this share of the time may be spent on choosing how many
checkpoints are averaged."""


class Tried(NamedTuple):
    """A setting of the search, and the BLEU that it gives on the development set."""

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
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[Tried]:
    """Translate the development set with several beams and values of alpha.

    Returns the results, the chosen setting first. Its alpha is chosen by `_alpha`; its beam has the
    highest BLEU of all beams tried with this alpha. The translator's own setting is tried first.
    Another setting is tried only if its translations are expected to be done within `seconds` of
    the call, and if `is_stopped` returns False. `heard` is called with each result. BLEU is
    sacreBLEU's, with `tokenizer`. In the end, the translator has its own setting again. Raises the
    errors of `Translator.translate` and `bleu`.
    """
    own, began = translator.recipe, time.monotonic()
    tried: list[Tried] = []

    def tries_best(beam: int, alpha: float) -> bool:
        """Try a setting; return whether it is the best so far.

        A setting is not tried if time is short or `is_stopped` returns True, if its beam is too
        wide for `max_extra`, or if it was tried before. The result is then False.
        """
        spent = time.monotonic() - began
        slower = max(1.0, beam / own.beam)
        late = bool(tried) and (is_stopped() or spent + slower * spent / len(tried) > seconds)
        too_wide = beam * own.max_extra > MOST_STEPPED
        if late or too_wide or any((beam, alpha) == one[:2] for one in tried):
            return False
        translator.recipe = own.but(beam=beam, alpha=alpha)
        outputs = translator.translate(sources, split=True)
        tried.append(Tried(beam, alpha, bleu(outputs, [list(references)], tokenizer)))
        heard(tried[-1])
        return _highest(tried) is tried[-1]

    try:
        tries_best(own.beam, own.alpha)
        larger = [alpha for alpha in ALPHAS if alpha > own.alpha]
        smaller = [alpha for alpha in reversed(ALPHAS) if alpha < own.alpha]
        for side in (larger, smaller):
            if _highest(tried).alpha == own.alpha:
                all(tries_best(own.beam, alpha) for alpha in side)  # `all` stops at the first False
        alpha = _alpha(tried, own.alpha)
        for beam in BEAMS:
            tries_best(beam, alpha)
    finally:
        translator.recipe = own
    chosen = _highest(filter(lambda one: one.alpha == alpha, tried))
    return sorted(tried, key=lambda one: one != chosen)  # the others stay in the order of trial


def _highest(tried: Iterable[Tried]) -> Tried:
    return max(tried, key=lambda one: one.bleu)  # of equal results, `max` gives the first


def _alpha(tried: Sequence[Tried], own: float) -> float:
    """The alpha with the highest smoothed BLEU; `tried` has settings of one beam only.

    The smoothed BLEU of an alpha is a weighted mean: the BLEU of the alpha has the weight 2, and
    the BLEU of each neighbour, the next smaller and the next larger tried alpha, has weight 1. This
    avoids an alpha whose neighbour has a very low BLEU: on another text, BLEU may already be low at
    this alpha. The smallest alpha has only one neighbour, and so has the largest. Such an alpha is
    not chosen if its neighbour has a higher BLEU: beyond this alpha, BLEU was not measured, and may
    be even lower. If several alphas have the highest mean, the alpha nearest to `own`, the recipe's
    alpha, is chosen.
    """
    ordered = sorted(tried, key=lambda one: one.alpha)

    def beside(place: int) -> list[float]:
        neighbours = [*ordered[max(0, place - 1) : place], *ordered[place + 1 : place + 2]]
        return [one.bleu for one in neighbours]

    def smoothed(place: int) -> float:
        return (2 * ordered[place].bleu + sum(beside(place))) / (2 + len(beside(place)))

    def is_known(place: int) -> bool:
        return len(beside(place)) == 2 or ordered[place].bleu >= max(beside(place), default=0.0)

    places = filter(is_known, range(len(ordered)))
    best = max(places, key=lambda i: (smoothed(i), -abs(ordered[i].alpha - own)))
    return ordered[best].alpha


def keep_chosen(directory: Path, tried: Sequence[Tried]) -> None:
    """Write beam and alpha of the chosen setting, `tried[0]`, into the recipe of a model.

    All settings in `tried`, with their BLEU, are written into the model's manifest. `directory`
    must hold the model. Raises ModelError if the model is damaged, RegardError if writing fails.
    """
    unseal(directory)
    beam, alpha, _ = tried[0]
    recipe = recipe_in(directory).but(beam=beam, alpha=alpha).to_toml().encode()
    replace_file(directory, "recipe.toml", recipe, tuned=[one._asdict() for one in tried])


def write_tuned(
    journal: Journal, step: int, sentences: int, own: SearchRecipe, tried: Sequence[Tried]
) -> None:
    """Write a `tuned` record: the results, and the beam and alpha before tuning, from `own`."""
    before = {"beam": own.beam, "alpha": own.alpha}
    results = [one._asdict() for one in tried]
    journal.write("tuned", step=step, sentences=sentences, own=before, tried=results)


def tune_run(run: Run) -> None:
    """Tune a finished run on the validation set, if its recipe says so; write into its journal.

    The number of averaged checkpoints is chosen first, then beam and alpha. If the run's time is
    limited, `tuning_seconds` gives the time for both choices; the first choice takes at most about
    the share AVERAGES of this time. In the remaining time, beam and alpha are chosen on as many
    sentences as the time allows. If fewer than FEWEST sentences can be used, beam and alpha stay
    unchanged. If the journal has a record of an earlier tuning at this step, beam and alpha are not
    tuned again, and `_keep_earlier` decides whether the earlier result is used.

    Raises Interrupted if a signal comes. Incomplete results are not written, so the same command
    tries the settings again. Also raises the errors of `choose_average`, `load`, `try_searches` and
    `keep_chosen`.
    """
    run.leave_if_asked()
    directory, recipe = run.directory.path, run.setup.recipe.training
    began, seconds = time.monotonic(), tuning_seconds(recipe.minutes) or float("inf")
    if recipe.tune:
        choose_average(run, AVERAGES * seconds)
    step = read_manifest(directory)["step"]
    ended = _ended(run, step)
    _keep_earlier(run, ended)
    if ended or not recipe.tune:
        return
    sources, references = (
        list(read_lines(run.setup.data / f"valid.{side}.txt")) for side in ("source", "target")
    )
    translator = load(directory)
    translator.prepare_few_rows()  # so that the time measured below does not include this
    seconds -= time.monotonic() - began
    there = len(sources)
    if recipe.minutes and there >= FEWEST:
        most = max(0, _affordable(translator, sources, seconds))
        sources, references = spread(sources, most), spread(references, most)
    if len(sources) < FEWEST:
        why = f"the time allows {len(sources)} of" if len(sources) < there else "only"
        run.warn(
            f"beam and alpha stay: {why} {count_of(there, 'validation sentence')} to choose them by"
        )
        run.journal.write("untuned", step=step, sentences=len(sources))
        return
    tried = try_searches(
        translator, sources, references, recipe.bleu_tokenizer, seconds=seconds,
        is_stopped=lambda: run.clock.interrupt.signum is not None,
    )  # fmt: skip
    run.leave_if_asked()
    keep_chosen(directory, tried)
    write_tuned(run.journal, step, len(sources), translator.recipe, tried)


def _ended(run: Run, step: int) -> list[Record]:
    """The records of earlier tunings at this step.

    Their event is "tuned", or "untuned" if too few sentences could be used.
    """
    records = read_journal(run.directory.path / "journal.jsonl")
    return [r for r in records if r["event"] in ("tuned", "untuned") and r.get("step") == step]


def _keep_earlier(run: Run, ended: Sequence[Record]) -> None:
    """Keep the result of the last tuning, if a tuning has tried the beam and alpha of the recipe.

    Each tuning tries the beam and alpha that the recipe has at that time. So if no tuning has tried
    those of the recipe, they were set after the last tuning, and they stay. `ended` are the records
    that `_ended` returns.
    """
    given = run.setup.recipe.search
    tried = [[Tried(**one) for one in r["tried"]] for r in ended if r["event"] == "tuned"]
    if all((given.beam, given.alpha) != one[:2] for each in tried for one in each):
        return
    keep_chosen(run.directory.path, tried[-1])
    beam, alpha, _ = tried[-1][0]
    if (beam, alpha) != (given.beam, given.alpha):
        run.warn(
            f"beam {beam} and alpha {alpha} stay, because they were tuned, and beam {given.beam} "
            f"and alpha {given.alpha} were tried: --beam and --alpha of regard translate replace "
            "them"
        )


def _affordable(translator: Translator, sources: Sequence[str], seconds: float) -> int:
    """Estimate how many sentences can be translated MANY_ENOUGH times within `seconds`.

    To measure the speed, TRIED_FIRST of the `sources` are translated.
    """
    began = time.monotonic()
    tried = len(translator.translate(spread(sources, TRIED_FIRST), split=True))
    return int(seconds * tried / (MANY_ENOUGH * (time.monotonic() - began)))


def spread(lines: Sequence[str], most: int) -> list[str]:
    """At most `most` of the lines, evenly spread over all lines.

    A development set often has one document after the other, so its beginning may be unlike the
    rest: the first 471 sentences of newstest2012 are much harder than the whole set.
    """
    count = min(most, len(lines))
    return [lines[place * len(lines) // count] for place in range(count)]


def refuse_unaligned(
    source: Path, sources: Sequence[str], reference: Path, references: Sequence[str]
) -> None:
    """Raise DataError if source and reference differ in number of lines, or one has no text."""
    if len(sources) != len(references):
        raise DataError(
            f"has {len(references):,} lines, and {shown_name(source)} has {len(sources):,}: give a "
            "development set whose lines correspond",
            shown_name(reference),
        )
    for path, lines in (source, sources), (reference, references):
        if not "".join(lines).strip():
            raise DataError("has no text: give a development set", shown_name(path))
