"""Sentences of the paper about its tables, each with a verdict from our figures.

The figures of two rows are compared seed by seed, and `parts.verdicts` gives the verdict. With
only one seed, the verdict is `Judgement.UNDECIDED`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from regard.parts.verdicts import Judgement, bounds, judge_alike, judge_more

Values = Mapping[str, Any]
"""The content of a table's JSON file."""
NEARLY_IDENTICAL = 1.0
"""Results are called nearly identical if they differ by less than this, in BLEU."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of the paper, and a statement about two rows that follows from it."""

    table: str
    section: str
    quote: str
    english: str
    korean: str
    better: str
    """The row that has the higher figure, according to the statement, unless `alike` is True."""
    worse: str
    number: str = "bleu"
    """The name of the figure by which the rows are compared."""
    alike: bool = False
    """If True, the statement says that both rows have nearly the same figure."""


@dataclass(frozen=True)
class Effect:
    """The figures of two rows in our tables, and the difference of the two rows in the paper.

    `values` has a figure of the row `Sentence.better` for each seed, and `others` has a figure of
    the row `Sentence.worse` for each seed. A seed counts only if both rows have a figure for it.
    """

    values: tuple[float, ...]
    others: tuple[float, ...]
    printed: float | None
    """The difference of BLEU or perplexity in the paper's Table 3; None for any other figure."""

    @property
    def mean(self) -> float:
        """The mean of `values` minus the mean of `others`."""
        return fmean(self.values) - fmean(self.others)

    @property
    def interval(self) -> tuple[float, float]:
        """The one-sided 95 % bounds of the mean difference, lower first; infinite for one seed."""
        return bounds(self.values, self.others)


def _table_3(quote: str, english: str, korean: str, rows: tuple[str, str], **more: Any) -> Sentence:
    return Sentence("table3", "6.2", quote, english, korean, *rows, **more)


_SINGLE = (
    "While single-head attention is 0.9 BLEU worse than the best setting, quality also drops off "
    "with too many heads."
)
_KEYS = (
    "In Table 3 rows (B), we observe that reducing the attention key size d_k hurts model quality."
)
_BIGGER = (
    "We further observe in rows (C) and (D) that, as expected, bigger models are better, and "
    "dropout is very helpful in avoiding over-fitting."
)
_LEARNED = (
    "In row (E) we replace our sinusoidal positional encoding with learned positional embeddings "
    "[9], and observe nearly identical results to the base model."
)
_SMOOTHING = (
    "This hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU "
    "score."
)
_FASTER = (
    "For translation tasks, the Transformer can be trained significantly faster than architectures "
    "based on recurrent or convolutional layers."
)
_FAMILIES = {"recurrent": "순환", "convolutional": "합성곱", "dilated": "팽창 합성곱"}
"""The Korean names of the families of models other than the Transformer. Each key is the name of
the family's row in the Table 2 that `regard reproduce` makes (`table2.family_recipes`)."""
PAPER_SENTENCES = (
    _table_3(_SINGLE, "8 heads have a higher BLEU than one", "헤드 8개의 BLEU가 1개보다 높다",
             ("base", "A1")),
    _table_3(_SINGLE, "8 heads have a higher BLEU than 32", "헤드 8개의 BLEU가 32개보다 높다",
             ("base", "A4")),
    _table_3(_KEYS, "a quarter of d_k lowers BLEU", "d_k를 4분의 1로 줄이면 BLEU가 낮아진다",
             ("base", "B1")),
    _table_3(_KEYS, "half of d_k lowers BLEU", "d_k를 절반으로 줄이면 BLEU가 낮아진다",
             ("base", "B2")),
    _table_3(_BIGGER, "fewer layers lower BLEU", "층을 줄이면 BLEU가 낮아진다",
             ("base", "C1")),
    _table_3(_BIGGER, "twice d_model raises BLEU", "d_model을 두 배로 하면 BLEU가 높아진다",
             ("C5", "base")),
    _table_3(_BIGGER, "twice d_ff raises BLEU", "d_ff를 두 배로 하면 BLEU가 높아진다",
             ("C7", "base")),
    _table_3(_BIGGER, "big has a higher BLEU than base", "big의 BLEU가 base보다 높다",
             ("big", "base")),
    _table_3(_BIGGER, "without dropout, BLEU is lower", "드롭아웃이 없으면 BLEU가 낮아진다",
             ("base", "D1")),
    _table_3(_LEARNED, f"BLEU of learned positions and sinusoids differs by less than "
             f"{NEARLY_IDENTICAL}",
             f"학습된 위치 임베딩과 사인파의 BLEU 차이는 {NEARLY_IDENTICAL}보다 작다",
             ("E", "base"), alike=True),
    Sentence("table3", "5.4", _SMOOTHING, "label smoothing raises perplexity",
             "레이블 스무딩은 퍼플렉시티를 높인다", "base", "D3", "perplexity"),
    Sentence("table3", "5.4", _SMOOTHING, "label smoothing raises accuracy",
             "레이블 스무딩은 정확도를 높인다", "base", "D3", "accuracy"),
    Sentence("table3", "5.4", _SMOOTHING, "label smoothing raises BLEU",
             "레이블 스무딩은 BLEU를 높인다", "base", "D3"),
    *(
        Sentence("table2", "7", _FASTER, f"after as many steps, the BLEU of the Transformer is "
                 f"higher than that of the {row} model",
                 f"같은 스텝 수만큼 학습하면 트랜스포머의 BLEU가 {name} 모델보다 높다", "base", row,
                 "bleu_13a")
        for row, name in _FAMILIES.items()
    ),
    *(
        Sentence("table2", "7", _FASTER, f"the {row} model takes more operations to train",
                 f"{name} 모델을 학습하는 데 연산이 더 많이 든다", row, "base", "counted_flop")
        for row, name in _FAMILIES.items()
    ),
)  # fmt: skip
"""Sentences of §5.4, §6.2 and §7 that the tables can test, with an entry for each statement."""


def effect_of(sentence: Sentence, tables: Mapping[str, Values]) -> Effect | None:
    """The figures of a sentence's two rows.

    Returns None if the table is missing, or if no seed has a figure of both rows.
    """
    values = tables.get(sentence.table)
    if values is None:
        return None
    read = _READERS[sentence.table]
    pairs = [
        (one, other)
        for seed in values["seeds"]
        if (one := read(values, sentence.better, str(seed), sentence.number)) is not None
        and (other := read(values, sentence.worse, str(seed), sentence.number)) is not None
    ]
    if not pairs:
        return None
    firsts, seconds = zip(*pairs, strict=True)
    return Effect(tuple(firsts), tuple(seconds), _printed(sentence, values))


def judged_effect(sentence: Sentence, effect: Effect) -> Judgement:
    """The verdict on a sentence, from the figures of its two rows."""
    if sentence.alike:
        return judge_alike(effect.values, effect.others, NEARLY_IDENTICAL)
    return judge_more(effect.values, effect.others)


def _of_table_3(values: Values, row: str, seed: str, number: str) -> float | None:
    numbers = values["rows"][row]["seeds"].get(seed)
    return None if numbers is None else numbers.get(number)


def _of_table_2(values: Values, row: str, seed: str, number: str) -> float | None:
    both = values["rows"][row].get(seed, {})
    numbers = {**(both.get("trained") or {}), **(both.get("unseen") or {})}
    return numbers.get(number)


_READERS: Mapping[str, Callable[[Values, str, str, str], float | None]] = {
    "table2": _of_table_2,
    "table3": _of_table_3,
}


def _printed(sentence: Sentence, values: Values) -> float | None:
    if sentence.table != "table3" or sentence.number not in ("bleu", "perplexity"):
        return None
    one, other = (
        values["rows"][row]["paper"][sentence.number] for row in (sentence.better, sentence.worse)
    )
    return float(one - other)
