"""Table 4's F1 over files: messages and their limit, totals, and properties of any trees."""

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score.brackets import Message, Remark, TooManyErrors, compare, score_brackets
from regard.score.evalb.parameters import COLLINS, EvalbParameters
from regard.score.evalb.report import HEADER, BracketScores, Row, Status

GOOD = b"(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat)) (. .)))"
OTHER = b"(TOP (S (NP (DT the) (NN dog)) (VP (VBD sat)) (. .)))"
OPEN = b"(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat)) (. .))"
EMPTY = b"(TOP (. .))"
UNBALANCED = "Bracketing is unbalanced (too many open bracket)"
SURPLUS = "Bracketing unbalance (too many close bracket)"


def said(
    gold: Iterable[bytes], test: Iterable[bytes], parameters: EvalbParameters = COLLINS
) -> tuple[list[Row | Message | Remark], str]:
    """Everything that `compare` yields, and the error at the end, if there is one."""
    found = []
    try:
        for one in compare(gold, test, parameters):
            found.append(one)  # noqa: PERF402 the items before the error are wanted
    except TooManyErrors as error:
        return found, str(error)
    return found, ""


def texts(found: Iterable[Row | Message | Remark]) -> list[str]:
    return [f"{one.line} : {one.text}" for one in found if isinstance(one, Message)]


@pytest.mark.parametrize(
    ("gold", "test", "status", "matched", "messages"),
    [
        (GOOD, GOOD, Status.VALID, 3, []),
        (GOOD, OTHER, Status.ERROR, 0, ["1 : Words unmatch (cat|dog)"]),
        (EMPTY, GOOD, Status.ERROR, 0, ["1 : Length unmatch (0|3)"]),
        (GOOD, EMPTY, Status.SKIPPED, 0, []),
        (b"", b" ", Status.SKIPPED, 0, []),
        (b"(S (NP", b"()", Status.SKIPPED, 0, [f"1 : {UNBALANCED}"]),
        (GOOD, OPEN, Status.ERROR, 3, [f"1 : {UNBALANCED}"]),
        (OPEN, OPEN, Status.ERROR, 3, [f"1 : {UNBALANCED}"] * 2),
        (OPEN, OTHER, Status.ERROR, 0, [f"1 : {UNBALANCED}", "1 : Words unmatch (cat|dog)"]),
        (GOOD + b")", GOOD, Status.ERROR, 3, [f"1 : {SURPLUS}"]),
    ],
)
def test_what_becomes_of_a_sentence(
    gold: bytes, test: bytes, status: Status, matched: int, messages: list[str]
) -> None:
    found, _ = said([gold], [test])
    row = found[-1]
    assert isinstance(row, Row)
    assert (row.status, row.counts.matched) == (status, matched)
    assert texts(found) == messages


def test_sentences_with_no_and_with_few_crossing_brackets_are_counted() -> None:
    gold = b"((NN a) ((NN b) (NN c)))"
    tests = [b"(" + b"(" * n + b"(NN a) (NN b)" + b")" * n + b"(NN c))" for n in range(4)]
    found = score_brackets([gold] * 4, tests).all
    assert (found.counts.crossing, found.without_crossing, found.few_crossing) == (6, 1, 3)


def test_more_gold_than_test() -> None:
    found, _ = said([GOOD, OPEN, GOOD], [GOOD])
    assert texts(found) == [
        f"2 : {UNBALANCED}",
        "2 : Number of lines unmatch (too many lines in gold file)",
    ]
    assert sum(isinstance(one, Row) for one in found) == 1


def test_more_test_than_gold() -> None:
    found, _ = said([GOOD], [GOOD, OPEN, GOOD])
    assert texts(found) == ["2 : Number of lines unmatch (too many lines in test file)"]
    assert sum(isinstance(one, Row) for one in found) == 1


@pytest.mark.parametrize("limit", [-1, 0, 1, 3])
def test_the_message_after_too_many_ends_the_run(limit: int) -> None:
    parameters = replace(COLLINS, max_errors=limit)
    enough = limit + 1
    found, refusal = said([GOOD] * enough, [OTHER] * enough, parameters)
    assert (len(found), refusal) == (2 * enough, "")
    found, refusal = said([GOOD] * (enough + 1), [OTHER] * (enough + 1), parameters)
    assert len(texts(found)) == limit + 2
    assert isinstance(found[-1], Message)
    assert refusal.startswith(f"line {enough + 1} of the trees: Words unmatch (cat|dog), ")


def test_skipped_sentences_are_not_errors() -> None:
    assert said([GOOD] * 20, [EMPTY] * 20)[1] == ""


@pytest.mark.parametrize("side", ["gold", "test"])
def test_a_bare_word_is_always_too_many(side: str) -> None:
    sides = [GOOD, b"(S (NN a b))"] if side == "test" else [b"(S (NN a b))", GOOD]
    found, refusal = said(*([GOOD, one] for one in sides), replace(COLLINS, max_errors=5))
    assert texts(found) == [
        "2 : More than two elements in a bracket",
        *["2 : Reading sentence"] * 6,
    ]
    assert "Reading sentence" in refusal


def test_remarks_name_the_side_and_the_line() -> None:
    long = b"(A" * 201 + b"(NN a)" + b")" * 201
    found, _ = said([GOOD, long], [GOOD, long])
    remarks = [one for one in found if isinstance(one, Remark)]
    assert [(one.side, one.line) for one in remarks] == [("gold", 2), ("test", 2)]
    assert found[-1] == Row(2, 1, Status.VALID, found[-1].counts)  # type: ignore[union-attr]
    assert texts(found) == []


def test_sums_and_blocks() -> None:
    """Worked by hand: a short valid sentence, a long valid one, an error, a skipped one."""
    parameters = replace(COLLINS, cutoff=4)
    gold = [GOOD, b"(S (NP (NN a)) (VP (VB b) (X (NN c) (NN d))) (. .))", GOOD, GOOD]
    test = [GOOD, b"(S (NP (NN a)) (VP (X (VB b) (NN c)) (JJ d)) (. .))", OTHER, EMPTY]
    scores = score_brackets(gold, test, parameters)
    figures = scores.all.figures()
    assert figures["recall"] == figures["precision"] == 100 * 6 / 7
    assert figures["f"] == pytest.approx(100 * 6 / 7)
    assert figures["tagging_accuracy"] == 100 * 6 / 7
    assert [figures[key] for key in ("sentences", "error", "skip", "valid")] == [4, 1, 1, 2]
    crossing = ("average_crossing", "no_crossing", "two_or_less_crossing")
    assert [figures[key] for key in crossing] == [0.5, 50, 100]
    assert figures["complete_match"] == 50
    short = scores.short.figures()
    assert [short[key] for key in ("sentences", "error", "skip", "valid")] == [3, 1, 1, 1]
    assert short["f"] == short["complete_match"] == 100


def test_the_printed_form() -> None:
    scores = score_brackets([GOOD, GOOD], [GOOD, EMPTY])
    rows = [str(one) for one in said([GOOD, GOOD], [GOOD, EMPTY])[0]]
    widths = {len(line) for line in HEADER.splitlines()[1:]}
    assert widths == {len(rows[0]), len(rows[1])} == {76}
    assert rows[1].split() == ["2", "4", "2", "0.00", "0.00", *"0000", "0", "0", "0.00"]
    assert scores.totals().splitlines()[1].split() == ["100.00", "100.00", *"33303", "3", "100.00"]
    summary = scores.summary().splitlines()
    assert summary[:3] == ["=== Summary ===", "", "-- All --"]
    assert summary[3] == "Number of sentence        =      2"
    assert summary[9] == "Bracketing FMeasure       = 100.00"
    assert summary[16] == "-- len<=40 --"
    assert len(summary) == 29


def test_without_a_bracket_f1_is_not_a_number() -> None:
    scores = score_brackets([b"(TOP (NN a))"], [b"(TOP (NN a))"])
    assert math.isnan(scores.all.f1)
    assert "Bracketing FMeasure       =   -nan" in scores.summary()
    assert scores.totals().splitlines()[1] == "      1     1   100.00"
    shown = scores.as_json()
    assert shown["all"]["f"] is None
    assert shown["all"]["printed_as_nan"] == ["f=-nan"]
    assert shown["all"]["complete_match"] == 100
    assert shown["totals_row"] == {"words": 1, "correct_tags": 1, "tagging_accuracy": 100.0}


def test_json_has_the_printed_figures() -> None:
    """1 of 32 is 3.125 per cent, which C rounds to the even digit."""
    gold = [b"(A (NN a))"] + [b"(B (NN a))"] * 31
    test = [b"(A (NN a))"] + [b"(C (NN a))"] * 31
    shown = score_brackets(gold, test).as_json()
    assert shown["all"]["recall"] == 3.12
    assert shown["totals_row"]["matched"] == 1
    assert list(shown) == ["cutoff", "all", "len_le_cutoff", "totals_row"]


def test_no_sentences() -> None:
    assert score_brackets([], []) == BracketScores()


LABELS = st.sampled_from([b"S", b"NP", b"VP-TPC", b"ADVP", b"PRT", b"TOP", b""])
TAGS = st.sampled_from([b"NN", b"DT", b"PRT", b"."])


@st.composite
def trees(draw: st.DrawFn, words: int) -> bytes:
    """A random tree over the words 0, 1, 2, ..."""

    def over(start: int, end: int) -> bytes:
        if end - start == 1:
            inner = b"(%s %d)" % (draw(TAGS), start)
        else:
            middle = draw(st.integers(start + 1, end - 1))
            inner = over(start, middle) + over(middle, end)
        return b"(%s%s)" % (draw(LABELS), inner) if draw(st.booleans()) else inner

    return b"(X" + over(0, words) + b")"


PAIRS = st.integers(1, 8).flatmap(lambda words: st.tuples(trees(words), trees(words)))


@given(PAIRS)
def test_a_tree_against_itself_is_perfect(pair: tuple[bytes, bytes]) -> None:
    block = score_brackets(pair, pair, replace(COLLINS, max_errors=0)).all
    counts = block.counts
    assert block.error == 0
    assert block.complete == block.without_crossing == block.valid == 2 - block.skip
    assert counts.matched == counts.gold_brackets == counts.test_brackets
    assert counts.correct_tags == counts.words
    assert block.f1 == 100 or block.skip == 2


@given(PAIRS)
def test_gold_and_test_exchanged_exchange_precision_and_recall(pair: tuple[bytes, bytes]) -> None:
    parameters = replace(COLLINS, deleted=frozenset({b"TOP"}))
    one = score_brackets([pair[0]], [pair[1]], parameters)
    other = score_brackets([pair[1]], [pair[0]], parameters)
    assert one.all.counts.precision == other.all.counts.recall
    assert one.all.counts.recall == other.all.counts.precision
    assert one.all.f1 == pytest.approx(other.all.f1, nan_ok=True)
    assert one.all.counts.correct_tags == other.all.counts.correct_tags
    assert one.all.error == 0


@given(st.lists(st.binary(max_size=40)), st.lists(st.binary(max_size=40)))
def test_any_bytes_can_be_compared(gold: list[bytes], test: list[bytes]) -> None:
    found, refusal = said(gold, test)
    rows = [one.line for one in found if isinstance(one, Row)]
    assert rows == list(range(1, len(rows) + 1))
    assert refusal or len(rows) == min(len(gold), len(test))
