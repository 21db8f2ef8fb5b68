"""§6.1 "BLEU": translation quality, computed by sacreBLEU so that others can reproduce the number.

The paper's own figures are for tokenised text, which gives about one point more: a number means
something only together with sacreBLEU's signature.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result

from regard.errors import DataError, MissingExtra
from regard.recipe import BleuTokenizer


@dataclass(frozen=True)
class TranslationScores:
    """How close translations are to their references."""

    bleu: float
    """BLEU of mixed-case text, 0 to 100."""
    chrf: float
    """chrF2: the F-score of character n-grams, 0 to 100."""
    ter: float
    """Translation edit rate: edits per hundred words of the reference; lower is better."""
    signatures: dict[str, str]
    """sacreBLEU's description of how each of the three was computed, by field name."""


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenizer: BleuTokenizer = "13a",
) -> TranslationScores:
    """BLEU, chrF and TER of a corpus of detokenised translations.

    `references` holds one or more reference translations of the whole corpus, each of as many
    sentences as `hypotheses`. `tokenizer` divides text into words for BLEU. Raises DataError if
    lengths differ or there is nothing to score, MissingExtra where the tokenizer is not installed.
    """
    _refuse_misaligned(hypotheses, references)
    metrics = {"bleu": _bleu(tokenizer), "chrf": CHRF(), "ter": TER()}
    values = {
        name: float(metric.corpus_score(hypotheses, references).score)
        for name, metric in metrics.items()
    }
    signatures = {name: str(metric.get_signature()) for name, metric in metrics.items()}
    return TranslationScores(**values, signatures=signatures)


@dataclass(frozen=True)
class Figure:
    """A score of one system, and how sure it is."""

    score: float
    interval: float
    """Half the width of the 95 % interval, by 1,000 bootstrap samples of the sentences."""
    p: float | None
    """Probability of a difference as large as that from the first system, if both were equally
    good, by paired bootstrap; None for the first system."""


def compare_translations(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    tokenizer: BleuTokenizer = "13a",
) -> tuple[list[dict[str, Figure]], dict[str, str]]:
    """The bleu, chrf and ter of each system with intervals, and sacreBLEU's signatures of them.

    Each system is compared with the first one. Samples are drawn from a fixed seed, unless
    SACREBLEU_SEED is in the environment. Raises as `score_translations` does.
    """
    for system in systems:
        _refuse_misaligned(system, references)
    metrics: dict[str, Metric] = {"bleu": _bleu(tokenizer), "chrf": CHRF(), "ter": TER()}
    named: list[tuple[str, Sequence[str]]] = [(str(n), one) for n, one in enumerate(systems)]
    test = PairedTest(named, metrics, [list(reference) for reference in references], "bs")
    signatures, results = test()
    names = dict(zip(metrics, signatures, strict=True))  # sacreBLEU renames chrf and ter
    columns = {field: cast(list[Result], results[name]) for field, name in names.items()}
    found = [
        {field: _figure(column[number], column[0]) for field, column in columns.items()}
        for number in range(len(systems))
    ]
    return found, {field: str(signatures[name]) for field, name in names.items()}


def _figure(found: Result, first: Result) -> Figure:
    p = found.p_value
    if p is not None and found.score == first.score:
        p = 1.0  # sacreBLEU counts differences above 0, of which there are none, as 0.001
    return Figure(float(found.score), float(found.ci or 0), p)


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenizer: BleuTokenizer = "13a",
) -> float:
    """Only the BLEU of `score_translations`, without the time that TER takes; raises as it does."""
    _refuse_misaligned(hypotheses, references)
    return float(_bleu(tokenizer, force=True).corpus_score(hypotheses, references).score)


def refuse_missing(tokenizer: BleuTokenizer) -> None:
    """Raise MissingExtra where the tokenizer is not installed."""
    _bleu(tokenizer)


def _bleu(tokenizer: BleuTokenizer, *, force: bool = False) -> BLEU:
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
                f"reference {number} has {len(reference)} sentences for {len(hypotheses)} "
                "translations: each translation needs its own"
            )
