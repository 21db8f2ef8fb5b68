"""Sentences of the paper are judged by our figures, row by row and seed by seed."""

from typing import Any

from regard.paper import TABLE_3, TABLE_3_RESULTS
from regard.parts.verdicts import Judgement
from regard.reproduce.scales import MINI_BASE
from regard.reproduce.sentences import PAPER_SENTENCES, effect_of, judged_effect
from regard.reproduce.table2 import family_recipes


def table_3(bleu: dict[str, list[float | None]]) -> dict[str, Any]:
    """The values of Table 3 with these BLEU for each seed."""
    rows = {
        row: {
            "paper": {"bleu": TABLE_3_RESULTS[row].bleu},
            "seeds": {
                str(seed): None if value is None else {"bleu": value}
                for seed, value in enumerate(bleu.get(row, [None] * 3), 1)
            },
        }
        for row in TABLE_3
    }
    return {"table3": {"seeds": [1, 2, 3], "rows": rows}}


def sentence(better: str, worse: str) -> Any:
    return next(
        s for s in PAPER_SENTENCES if (s.better, s.worse, s.number) == (better, worse, "bleu")
    )


def test_the_rows_of_sentences_exist() -> None:
    rows = {"table3": set(TABLE_3), "table2": set(family_recipes(MINI_BASE))}
    for one in PAPER_SENTENCES:
        assert {one.better, one.worse} <= rows[one.table]


def test_one_head_against_eight() -> None:
    effect = effect_of(sentence("base", "A1"), table_3({"base": [50, 51, 52], "A1": [48, 49, 51]}))
    assert effect is not None
    assert abs(effect.mean - 5 / 3) < 1e-9
    assert effect.printed is not None
    assert round(effect.printed, 1) == 0.9  # "0.9 BLEU worse"
    assert judged_effect(sentence("base", "A1"), effect) is Judgement.HOLDS


def test_seeds_that_only_one_row_has_are_left_out() -> None:
    effect = effect_of(
        sentence("big", "base"), table_3({"base": [50, 51, None], "big": [40, None, 41]})
    )
    assert effect is not None
    assert (effect.values, effect.others) == ((40,), (50,))
    assert judged_effect(sentence("big", "base"), effect) is Judgement.UNDECIDED  # of one seed
    assert effect_of(sentence("base", "A1"), table_3({"base": [50, 51, 52]})) is None
    assert effect_of(sentence("base", "A1"), {}) is None


def test_learned_positions_are_to_be_alike() -> None:
    alike = sentence("E", "base")
    for learned, verdict in (
        ([50.1, 51.2, 52], Judgement.HOLDS),
        ([57, 58, 59.5], Judgement.FAILS),
    ):
        effect = effect_of(alike, table_3({"base": [50, 51, 52], "E": learned}))
        assert effect is not None
        assert judged_effect(alike, effect) is verdict
