"""A line of brackets: words, deleted words, spans of brackets, and malformed lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score.evalb.parameters import COLLINS, EvalbParameters
from regard.score.evalb.reading import UNCLOSED, EvalbSentence, Quote, read_sentence


def brackets(sentence: EvalbSentence) -> list[tuple[bytes, int, int]]:
    return list(zip(sentence.labels, sentence.starts, sentence.ends, strict=True))


def words(line: bytes) -> list[tuple[bytes, bytes]]:
    sentence = read_sentence(line, COLLINS)
    return list(zip(sentence.tags, sentence.words, strict=True))


def test_a_tree() -> None:
    line = b"(TOP (S (NP-SBJ (-NONE- *)) (VP (VB go) (ADVP=2 (RB there))) (. .)))\n"
    sentence = read_sentence(line, COLLINS)
    assert (sentence.words, sentence.tags) == ([b"go", b"there"], [b"VB", b"RB"])
    assert brackets(sentence) == [
        (b"TOP", 0, 2),
        (b"S", 0, 2),
        (b"NP-SBJ", 0, 0),
        (b"VP", 0, 2),
        (b"ADVP=2", 1, 2),
    ]
    assert sentence.length == 3
    assert not (sentence.messages or sentence.stuck or sentence.remarks)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"( )", [(b"", b"")]),
        (b"(NP )", [(b"NP", b"")]),
        (b"(NN\t\x0b\r a)", [(b"NN", b"a")]),
        (b"(NN a)(NN b)", [(b"NN", b"a"), (b"NN", b"b")]),
        ("(NN 10\u00a0000) (NN \u2028) (NN \x1c)".encode(), None),
        (b"(NN .) (. word) (,-X ,)", [(b"NN", b"."), (b",-X", b",")]),
        (b"(-RRB- )", [(b"-RRB-", b"")]),
        (b"()", []),
        (b"(NP)", []),
        (b"", []),
    ],
)
def test_what_is_a_word(line: bytes, expected: list[tuple[bytes, bytes]] | None) -> None:
    if expected is None:  # a character that only looks like a blank is not one
        expected = [(b"NN", word.encode()) for word in ("10\u00a0000", "\u2028", "\x1c")]
    assert words(line) == expected


def test_raw_parentheses_are_brackets() -> None:
    sentence = read_sentence(b"(S (-LRB- () (NN a) (-RRB- )))", COLLINS)
    assert brackets(sentence) == [(b"S", 0, 2), (b"-LRB-", 0, 2), (b"", 0, 0)]
    assert sentence.words == [b"a", b""]
    assert sentence.messages == []


def test_length_and_deletion_are_told_apart() -> None:
    parameters = EvalbParameters(deleted=frozenset({b"."}), not_in_length=frozenset({b"SYM"}))
    sentence = read_sentence(b"(S (SYM *) (NN a) (. .))", parameters)
    assert (sentence.length, sentence.words) == (2, [b"*", b"a"])


def test_a_bracket_that_is_not_closed() -> None:
    sentence = read_sentence(b"(S (NP (NN a))", COLLINS)
    assert brackets(sentence) == [(b"S", 0, UNCLOSED), (b"NP", 0, 1)]
    assert sentence.messages == ["Bracketing is unbalanced (too many open bracket)"]


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        (b"(S (NN a) b)", []),
        (b"a", []),
        (b"(S foo(NN a))", []),
        (b"(S foo (NN a))", ["More than two elements in a bracket"]),
        (b"(NN a b)", ["More than two elements in a bracket"]),
        (b"(NN a )", ["More than two elements in a bracket"]),
        (b"( S (NN a))", ["More than two elements in a bracket"]),
        (b"(S (NN a", ["More than two elements in a bracket"]),
    ],
)
def test_a_bare_word_stops_the_reading(line: bytes, messages: list[str]) -> None:
    sentence = read_sentence(line, COLLINS)
    assert sentence.stuck
    assert sentence.messages == messages


def test_quotation_marks_are_remembered_deleted_or_not() -> None:
    parameters = EvalbParameters(deleted=frozenset({b"``"}), quotes=frozenset({b"``", b"POS"}))
    sentence = read_sentence(b'(S (`` ") (NP (NN a) (POS \')) (`` x) (NN "))', parameters)
    assert sentence.words == [b"a", b"'", b'"']
    assert sentence.quotes == [Quote(b'"', b"``", 0, 1, (0,)), Quote(b"'", b"POS", 1, 2, (0, 1))]


def chain(depth: int) -> bytes:
    return b"(A" * depth + b"(NN a)" + b")" * depth


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (chain(201), "has 201 brackets (at most 200)"),
        (b"(S" + b"(NN a)" * 201 + b")", "has 201 words (at most 200)"),
        (b"(S (" + b"N" * 30 + b" a))", "has a label of more than 29 bytes"),
        (b"(S (. " + b"." * 100 + b"))", "has a word of more than 99 bytes"),
        (b"(S (NN a)" + b" " * 4990 + b")", "has 5,001 bytes (at most 4,999)"),
        (b"(S (NN a)))", "has 1 closing bracket too many"),
        (b"(S (NN a))))", "has 2 closing brackets too many"),
        (b"(S (NN a) (NP", "ends inside a bracket"),
        (b"(S (NN a) (NP \n", "ends inside a bracket"),
    ],
)
def test_what_the_program_could_not_hold_is_read_and_remarked_on(line: bytes, said: str) -> None:
    sentence = read_sentence(line, COLLINS)
    assert len(sentence.remarks) == 1
    assert sentence.remarks[0].startswith(said)
    assert sentence.words[:1] == ([] if b"(. " in line else [b"a"])
    assert not sentence.stuck


def test_a_byte_order_mark_is_remarked_on() -> None:
    sentence = read_sentence(b"\xef\xbb\xbf(S (NN a))", COLLINS)
    assert sentence.stuck
    assert sentence.remarks[0].startswith("begins with a byte order mark")
    assert not read_sentence(b"x(S (NN a))", COLLINS).remarks


@pytest.mark.parametrize(
    "line",
    [
        chain(200),
        b"(S" + b"(NN a)" * 200 + b")",
        b"(S (" + b"N" * 29 + b" a))",
        b"(S (NN " + b"a" * 99 + b"))",
        b"(S (NN a)" + b" " * 4988 + b")\n",
    ],
    ids=["brackets", "words", "label", "word", "bytes"],
)
def test_what_the_program_can_just_hold_is_not_remarked_on(line: bytes) -> None:
    assert read_sentence(line, COLLINS).remarks == []


@given(st.binary() | st.text("()ab \t.-").map(str.encode))
def test_any_bytes_can_be_read(line: bytes) -> None:
    sentence = read_sentence(line, COLLINS)
    assert len(sentence.words) == len(sentence.tags) <= sentence.length
    assert len(sentence.starts) == len(sentence.ends) == len(sentence.labels)
    closed = line.count(b"(") == line.count(b")")
    assert closed or sentence.stuck or sentence.messages
    for start, end in zip(sentence.starts, sentence.ends, strict=True):
        assert end == UNCLOSED or 0 <= start <= end <= len(sentence.words)
