"""The figures of one sentence, worked by hand."""

import pytest

from regard.score.evalb.counting import BracketCounts, count, mismatch
from regard.score.evalb.parameters import COLLINS, EvalbParameters
from regard.score.evalb.reading import read_sentence

A, B, C, D = b"(NN a)", b"(NN b)", b"(NN c)", b"(NN d)"


def counts(gold: bytes, test: bytes, parameters: EvalbParameters = COLLINS) -> BracketCounts:
    one, other = read_sentence(gold, parameters), read_sentence(test, parameters)
    assert mismatch(one, other, parameters) is None
    return count(one, other, parameters)


def equal(*pairs: tuple[bytes, bytes], **others: object) -> EvalbParameters:
    both = frozenset(pairs) | {(other, one) for one, other in pairs}
    return EvalbParameters(equal_labels=both, **others)  # type: ignore[arg-type]


def test_precision_and_recall() -> None:
    gold = b"(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (NN it))))))"
    test = b"(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat)) (PP (RB on) (NP (NN it)))))"
    found = counts(gold, test)
    assert found == BracketCounts(4, 5, 5, 0, 5, 4)
    assert (found.recall, found.precision, found.tagging_accuracy) == (80, 80, 80)


def test_without_brackets_percentages_are_zero() -> None:
    assert (
        BracketCounts().recall,
        BracketCounts().precision,
        BracketCounts().tagging_accuracy,
    ) == (0, 0, 0)


@pytest.mark.parametrize(
    ("gold", "test", "matched"),
    [
        (b"(NP-SBJ (NN a))", b"(NP=3 (NN a))", 1),
        (b"(-LRB- (NN a))", b"((NN a))", 1),
        (b"(NP|x (NN a))", b"(NP (NN a))", 0),
        (b"(ADVP (NN a))", b"(PRT-DIR (NN a))", 1),
        (b"(NP (NN a))", b"(np (NN a))", 0),
        (b"(X (Y (NN a)))", b"(Y (X (NN a)))", 2),
        (b"(X (X (NN a)))", b"(X (NN a))", 1),
        (b"(X (NN a))", b"(X (X (X (NN a))))", 1),
        (b"(X (, ,) (NN a) (. .))", b"(. .) (X (NN a) (NP (, ,)))", 1),
        (b"(TOP-1 (NN a))", b"(TOP (NN a))", 0),
        (b"(-NONE- (NN a))", b"(=2 (NN a))", 1),
    ],
)
def test_which_brackets_match(gold: bytes, test: bytes, matched: int) -> None:
    assert counts(gold, test).matched == matched


@pytest.mark.parametrize("label", [b"TOP", b"TOP-1", b"TOP=X", b",", b".-SBJ"])
def test_brackets_of_deleted_labels_are_not_counted(label: bytes) -> None:
    assert counts(b"(" + label + b" (X " + A + b"))", b"(X " + A + b")") == BracketCounts(
        1, 1, 1, 0, 1, 1
    )


@pytest.mark.parametrize("empty", [b"(NP (, ,))", b"(NP-SBJ (-NONE- *))", b"(VP (NP (. .)))"])
def test_brackets_without_words_are_not_counted(empty: bytes) -> None:
    one = BracketCounts(1, 1, 1, 0, 1, 1)
    assert counts(b"(X " + A + empty + b")", b"(X " + A + b")") == one
    assert counts(b"(X " + A + b")", b"(X " + empty + A + b")") == one


def test_a_label_equal_to_a_deleted_one_is_deleted_as_a_bracket_but_not_as_a_tag() -> None:
    parameters = equal((b"WRAP", b"TOP"), deleted=frozenset({b"TOP"}))
    found = counts(b"(WRAP (X (WRAP a)))", b"(X (TOP-1 (WRAP a)))", parameters)
    assert found == BracketCounts(1, 1, 1, 0, 1, 1)


def test_equal_labels_are_taken_in_order_and_not_chained() -> None:
    parameters = equal((b"A", b"B"), (b"B", b"C"))
    # A takes the first free bracket that it may, B, so none is left for the second B...
    assert counts(b"(B (C (NN a)))", b"(B (A (NN a)))", parameters).matched == 1
    # ... although in the other order both would have matched.
    assert counts(b"(B (C (NN a)))", b"(A (B (NN a)))", parameters).matched == 2
    assert counts(b"(A (NN a))", b"(C (NN a))", parameters).matched == 0


def test_unlabelled() -> None:
    found = counts(b"(X (Y (NN a)))", b"(P (Q (R (NN a))))", EvalbParameters(labelled=False))
    assert found == BracketCounts(2, 2, 3, 0, 1, 1)


def tree(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b")"


@pytest.mark.parametrize(
    ("gold", "test", "crossing"),
    [
        (tree(A, tree(B, C)), tree(tree(A, B), C), 1),
        (tree(A, tree(B, C)), tree(tree(tree(A, B)), C), 2),
        (tree(A, tree(B, tree(C, D))), tree(A, tree(tree(B, C), D)), 1),
        (tree(tree(A, B), tree(C, D)), tree(A, tree(B, C), D), 1),
        (tree(tree(A, B), tree(C, D)), tree(tree(A), B, tree(C), D), 0),
        (tree(tree(A, B), C), tree(A, B, C), 0),
        (tree(A, b"(. .)", tree(B, C)), tree(A, tree(b"(. .)", B, C)), 0),
        (tree(A, b"(,", tree(B, C), b")"), tree(tree(A, B), C), 1),
        (b"(TOP " + A + b"(TOP " + B + C + b"))", tree(tree(A, B), C), 0),
        (tree(A, tree(B, C)), tree(b"(TOP " + A + B + b")", C), 0),
        (b"(X" + A + b"(X" + B + C, tree(tree(A, B), C), 0),
    ],
)
def test_crossing_brackets(gold: bytes, test: bytes, crossing: int) -> None:
    assert counts(gold, test).crossing == crossing


def test_tags_are_compared_whole() -> None:
    gold = b"(X (PRT a) (NN b) (NN-X c) (DT d))"
    assert counts(gold, b"(X (ADVP a) (NNS b) (NN c) (DT d))").correct_tags == 2


@pytest.mark.parametrize(
    ("gold", "test", "message"),
    [
        (A + B, A, "Length unmatch (2|1)"),
        (A + B, A + B + b"(. .)", None),
        (A + b"(. !)", b"(. ?)" + A, None),
        (A + b"(. ?)", A + b"(NN ?)", "Length unmatch (1|2)"),
        (b"(. a)" + B, A + b"(. b)", "Words unmatch (b|a)"),
        (A + B, A + C, "Words unmatch (b|c)"),
        (A, b"(NN A)", "Words unmatch (a|A)"),
        ("(NN é)".encode(), "(NN e\u0301)".encode(), "Words unmatch (é|e\u0301)"),
        (b"(NN \xff)", A, "Words unmatch (\udcff|a)"),
    ],
)
def test_sentences_that_cannot_be_compared(gold: bytes, test: bytes, message: str | None) -> None:
    assert mismatch(read_sentence(gold, COLLINS), read_sentence(test, COLLINS), COLLINS) == message


def test_equal_words_hold_in_either_order() -> None:
    words = frozenset({(b"a", b"b"), (b"b", b"a")})
    parameters = EvalbParameters(equal_words=words)
    for gold, test in ((A, B), (B, A)):
        assert (
            mismatch(read_sentence(gold, parameters), read_sentence(test, parameters), parameters)
            is None
        )
    assert (
        mismatch(read_sentence(A, parameters), read_sentence(C, parameters), parameters) is not None
    )


class TestQuotes:
    """A mark that one side deleted is put back; brackets around and after it move."""

    parameters = EvalbParameters(deleted=frozenset({b"``"}), quotes=frozenset({b"``", b"POS"}))
    deleted, kept = b'(`` ")', b'(POS ")'

    @pytest.mark.parametrize("swapped", [False, True])
    def test_a_mark_is_put_back_on_either_side(self, swapped: bool) -> None:
        sides = [b"(S " + A + b"(NP " + mark + B + b"))" for mark in (self.deleted, self.kept)]
        if swapped:
            sides.reverse()
        assert counts(sides[0], sides[1], self.parameters) == BracketCounts(2, 2, 2, 0, 3, 2)

    def test_brackets_that_open_later_move(self) -> None:
        one, other = (b"(S " + mark + b"(NP " + A + b"))" for mark in (self.deleted, self.kept))
        assert counts(one, other, self.parameters) == BracketCounts(2, 2, 2, 0, 2, 1)

    def test_later_marks_move_with_it(self) -> None:
        one = b"(S " + self.deleted + A + self.deleted + b")"
        other = b"(S " + self.kept + A + self.kept + b")"
        assert counts(one, other, self.parameters) == BracketCounts(1, 1, 1, 0, 3, 1)

    def test_one_mark_of_the_gold_sentence_is_put_back_for_each_of_two_others(self) -> None:
        """EVALB moves it past its copy, where the next mark finds it; but not in the test tree."""
        once, twice = self.deleted + A, self.kept + self.kept + A
        assert counts(once, twice, self.parameters) == BracketCounts(0, 0, 0, 0, 3, 1)
        one, other = (read_sentence(side, self.parameters) for side in (twice, once))
        assert mismatch(one, other, self.parameters) == "Length unmatch (3|2)"

    def test_a_mark_deleted_on_both_sides_stays_away(self) -> None:
        assert counts(self.deleted + A, self.deleted + A, self.parameters).words == 1

    def test_nothing_is_put_back_where_the_lengths_agree(self) -> None:
        gold, test = self.deleted + A + B, self.kept + A
        one, other = read_sentence(gold, self.parameters), read_sentence(test, self.parameters)
        assert mismatch(one, other, self.parameters) == 'Words unmatch (a|")'

    def test_other_words_are_not_put_back(self) -> None:
        one, other = (
            read_sentence(b"(`` x)" + A, self.parameters),
            read_sentence(b"(POS x)" + A, self.parameters),
        )
        assert mismatch(one, other, self.parameters) == "Length unmatch (1|2)"
