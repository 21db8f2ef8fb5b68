"""§6.1 "BLEU": translation quality, computed by sacreBLEU so that others can reproduce the number.

For the BLEU that the paper prints, text was divided into words in another way, which gives about
one point more (`report.py`). So a BLEU can be compared only with a BLEU of the same sacreBLEU
signature.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from regard.amounts import count_of
from regard.errors import DataError, MissingExtra
from regard.recipe import BleuTokenizer
from regard.text.scripts import script_of


@dataclass(frozen=True)
class TranslationScores:
    """How close translations are to their references."""

    bleu: float
    """Cased BLEU, 0 to 100."""
    chrf: float
    """chrF2: the F-score of character n-grams, 0 to 100."""
    ter: float
    """Translation edit rate: edits per hundred words of the reference; lower is better."""
    signatures: dict[str, str]
    """sacreBLEU's description of how each of the three scores was computed, by field name."""


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenizer: BleuTokenizer = "13a",
) -> TranslationScores:
    """BLEU, chrF and TER of a corpus of detokenised translations.

    `references` holds one or more reference translations of the whole corpus. Each of them has as
    many sentences as `hypotheses`. `tokenizer` divides text into words for BLEU. Raises DataError
    if lengths differ or there is nothing to score, and MissingExtra if the tokenizer is not
    installed.
    """
    _refuse_misaligned(hypotheses, references)
    metrics = _metrics(tokenizer, references)
    values = {
        name: float(metric.corpus_score(hypotheses, references).score)
        for name, metric in metrics.items()
    }
    signatures = {name: str(metric.get_signature()) for name, metric in metrics.items()}
    return TranslationScores(**values, signatures=signatures)


_SAMPLES = 1000
"""The number of bootstrap samples of the sentences."""


@dataclass(frozen=True)
class Figure:
    """A score of one system, with its confidence interval and its significance."""

    score: float
    interval: tuple[float, float]
    """The ends of the 95 % interval, by 1,000 bootstrap samples of the sentences."""
    p: float | None
    """The p-value by paired bootstrap: if this system and the first were equally good, a difference
    larger than the measured one would have this probability. None for the first system."""


def compare_translations(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    tokenizer: BleuTokenizer = "13a",
) -> dict[str, tuple[list[Figure], str]]:
    """For each of bleu, chrf and ter: the figure of each system, and sacreBLEU's signature.

    Each system is compared with the first one. Samples are drawn from a fixed seed, unless
    SACREBLEU_SEED is in the environment. Raises the same errors as `score_translations`, and
    DataError if the value of SACREBLEU_SEED cannot be used as a seed.
    """
    metrics = _metrics(tokenizer, references)
    return {name: compare_by(metric, systems, references) for name, metric in metrics.items()}


def compare_by(
    metric: Metric, systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> tuple[list[Figure], str]:
    """The figures of a metric, one for each system, and the metric's signature.

    Each system is compared with the first one.

    Raises DataError if lengths differ, if there is nothing to score, or if the value of
    SACREBLEU_SEED cannot be used as a seed.
    """
    for system in systems:
        _refuse_misaligned(system, references)
    _refuse_unusable_seed()
    named: list[tuple[str, Sequence[str]]] = [(str(n), one) for n, one in enumerate(systems)]
    sampled = _Sampled(metric)
    by = {"": cast(Metric, sampled)}
    test = PairedTest(named, by, [list(one) for one in references], "bs", _SAMPLES)
    signatures, results = test()
    ((name, signature),) = signatures.items()
    column = cast(list[Result], results[name])
    # sacreBLEU scores the samples of the first system. Then, for each other system, it scores the
    # samples of the first system again, and of the other system. So the rows of scores belong to
    # the systems 1, 1, 2, 1, 3, ..., and the rows 0, 2, 4, ... have each system once.
    drawn = np.array(sampled.scores).reshape(-1, _SAMPLES)[::2]
    figures = [_figure(one, column[0], its) for one, its in zip(column, drawn, strict=True)]
    return figures, str(signature)


class _Sampled:
    """A metric that keeps the score of each bootstrap sample.

    sacreBLEU returns only the mean of these scores and half the width of their 95 % interval. The
    mean is not in the middle of this interval, and the mean plus half the width may exceed 100.
    """

    def __init__(self, metric: Metric):
        self._metric = metric
        self.scores: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metric, name)

    def _compute_score_from_stats(self, stats: list[Any]) -> Any:
        found = self._metric._compute_score_from_stats(stats)
        self.scores.append(found.score)
        return found


def _refuse_unusable_seed() -> None:
    seed = os.environ.get("SACREBLEU_SEED", "none")
    try:
        usable = seed.lower() == "none" or int(seed) >= 1  # sacreBLEU treats 0 as no seed
    except ValueError:
        usable = False
    if not usable:
        raise DataError(
            f"SACREBLEU_SEED is {seed!r} in the environment: set a whole number from 1, or none"
        )


def _figure(found: Result, first: Result, samples: NDArray[np.float64]) -> Figure:
    low, high = np.sort(samples)[[_SAMPLES // 40, -1 - _SAMPLES // 40]].tolist()
    p = found.p_value
    if p is not None and found.score == first.score:
        p = 1.0  # for equal translations, sacreBLEU would give p = 0.001
    return Figure(float(found.score), (low, high), p)


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenizer: BleuTokenizer = "13a",
) -> float:
    """The BLEU of `score_translations` alone, without the slow TER; raises the same errors."""
    _refuse_misaligned(hypotheses, references)
    return float(bleu_metric(tokenizer, force=True).corpus_score(hypotheses, references).score)


def refuse_missing(tokenizer: BleuTokenizer) -> None:
    """Raise MissingExtra if the tokenizer is not installed."""
    bleu_metric(tokenizer)


def _metrics(tokenizer: BleuTokenizer, references: Sequence[Sequence[str]]) -> dict[str, Metric]:
    return {"bleu": bleu_metric(tokenizer), "chrf": CHRF(), "ter": ter_metric(references)}


def ter_metric(references: Sequence[Sequence[str]]) -> TER:
    """SacreBLEU's TER; for Chinese and Japanese, with its options `normalized` and `asian_support`.

    Both options together make a word of each Chinese character, of each run of kana (the letters of
    Japanese) and of most punctuation marks. Without them, a line without blanks would be one word.
    The script of the first reference decides whether the options are used.
    """
    asian = bool(references) and script_of(references[0]) in ("Chinese", "Japanese")
    return TER(normalized=asian, asian_support=asian)


def bleu_metric(tokenizer: BleuTokenizer, *, force: bool = False) -> BLEU:
    """SacreBLEU's BLEU; `force` silences its warning that text looks tokenised.

    Raises MissingExtra if the tokenizer is not installed.
    """
    try:
        return BLEU(tokenize=tokenizer, force=force)
    except RuntimeError:
        raise MissingExtra(f"BLEU by {tokenizer}", tokenizer.removesuffix("-mecab")) from None


def _refuse_misaligned(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if not hypotheses or not references:
        raise DataError("nothing to score: give at least one translation and its reference")
    for number, reference in enumerate(references, start=1):
        if len(reference) != len(hypotheses):
            raise DataError(
                f"reference {number} has {count_of(len(reference), 'sentence')} for "
                f"{count_of(len(hypotheses), 'translation')}: each translation needs its own"
            )
