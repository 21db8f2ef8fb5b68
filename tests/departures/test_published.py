"""What the paper printed for each of its recipes."""

import pytest

from regard.departures.published import published, row_in_words
from regard.paper import PAPER_RECIPES, TABLE_3_RESULTS


@pytest.mark.parametrize("row", PAPER_RECIPES)
def test_something_was_published_for_every_row(row: str) -> None:
    lines = published(row)
    assert lines
    if row in TABLE_3_RESULTS:
        assert f"BLEU {TABLE_3_RESULTS[row].bleu}" in " ".join(lines)


@pytest.mark.parametrize(
    ("row", "figure"),
    [
        ("base", "Table 2: BLEU 27.3 on newstest2014, English to German; 3.3e18 operations"),
        ("big", "Table 2: BLEU 28.4 on newstest2014, English to German; 2.3e19 operations"),
        ("big-en-fr", "Table 2: BLEU 41.8 on newstest2014, English to French; 2.3e19 operations"),
        ("wsj", "Table 4: F1 91.3 on section 23 of the Wall Street Journal"),
        ("wsj-semi", "Table 4: F1 92.7 on section 23 of the Wall Street Journal"),
    ],
)
def test_figures(row: str, figure: str) -> None:
    assert figure in published(row)


def test_a_row_in_words() -> None:
    assert row_in_words("base") == "the base model"
    assert row_in_words("D2") == "base with model.dropout = 0.2"
