import pytest

from regard.recipe import DataRecipe
from regard.text.cleaning import LONGEST_PIECE, Verdict, judge_length, judge_text

RULES = DataRecipe(max_length=7, max_ratio=3.0)


@pytest.mark.parametrize(
    ("source", "target", "verdict"),
    [
        ("a rose", "eine Rose", Verdict.KEPT),
        ("", "eine Rose", Verdict.EMPTY),
        ("a rose", "", Verdict.EMPTY),
        ("a rose", " \t\u3000\r", Verdict.EMPTY),
        ("a" * 10, "b", Verdict.KEPT),  # the ratio is for pairs over ten characters
        ("a" * 11, "b", Verdict.RATIO),
        ("b" * 5, "a" * 15, Verdict.KEPT),
        ("b" * 5, "a" * 16, Verdict.RATIO),
        ("a" * (7 * LONGEST_PIECE), "a" * (7 * LONGEST_PIECE), Verdict.KEPT),
        ("a", "a" * (7 * LONGEST_PIECE + 1), Verdict.TOO_LONG),
    ],
)
def test_text_is_judged_by_the_rules(source: str, target: str, verdict: Verdict) -> None:
    assert judge_text(source, target, RULES) is verdict


def test_the_longest_sentence_kept_has_max_length_pieces_with_its_end() -> None:
    assert judge_length(6, 1, RULES) is Verdict.KEPT
    assert judge_length(7, 1, RULES) is Verdict.TOO_LONG
    assert judge_length(1, 7, RULES) is Verdict.TOO_LONG
