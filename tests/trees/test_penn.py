"""Penn bracketing, read and written: every irregularity of real files, and every kind of damage."""

import gzip
import itertools
import lzma
import random
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.errors import DataError
from regard.files.lines import read_lines
from regard.trees.penn import (
    bracketed,
    plain_word,
    pretty,
    read_scored_trees,
    read_trees,
)
from regard.trees.tree import Tree
from trees.strategies import chain, penn_trees, random_tree, trees


def read(text: str) -> list[Tree]:
    return list(read_trees(text.split("\n"), "file.mrg"))


def refusal(text: str) -> str:
    with pytest.raises(DataError) as caught:
        read(text)
    return str(caught.value)


def leaf(tag: str, word: str) -> Tree:
    return Tree(tag, word=word)


HE_SAT = Tree("S", (Tree("NP", (leaf("PRP", "he"),)), Tree("VP", (leaf("VBD", "sat"),))))


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP (PRP he)) (VP (VBD sat)))",
        "(S(NP(PRP he))(VP(VBD sat)))",
        "  ( S   (NP\t(PRP  he) )( VP ( VBD\tsat ) ) ) ",
        "(S\n  (NP\n    (PRP\n he))\n\n  (VP (VBD sat)\n  )\n)\n",
        "(S (NP (PRP he))\r\n  (VP (VBD sat)))\r\n",
        "\ufeff(S (NP (PRP he)) (VP (VBD sat)))",
        "*x*x*x*x*\n*x* Copyright (C) 1995 *x*\n\n(S (NP (PRP he)) (VP (VBD sat)))",
        "(S\v(NP\f(PRP he)) (VP (VBD sat)))",
    ],
)
def test_however_it_is_spread_it_is_one_tree(text: str) -> None:
    assert read(text) == [HE_SAT]


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("( (S (PRP he)))", Tree("", (Tree("S", (leaf("PRP", "he"),)),))),
        ("((S (PRP he)))", Tree("", (Tree("S", (leaf("PRP", "he"),)),))),
        ("( (PRP he) (. .))", Tree("", (leaf("PRP", "he"), leaf(".", ".")))),
        ("(PRP he)", leaf("PRP", "he")),
        ("(NP-SBJ=1 (-NONE- *T*-1))", Tree("NP-SBJ=1", (leaf("-NONE-", "*T*-1"),))),
        ("(-LRB- -LRB-)", leaf("-LRB-", "-LRB-")),
        ("(CD 1\\/2)", leaf("CD", "1\\/2")),
        ("(NN alpha 2  b)", leaf("NN", "alpha 2 b")),
        ("( END_OF_TEXT_UNIT )", leaf("", "END_OF_TEXT_UNIT")),
        ("( NN dog)", leaf("NN", "dog")),
        ("(NN \xa0)", leaf("NN", "\xa0")),
        ("(NN a\x85b\u2028c\x1cd)", leaf("NN", "a\x85b\u2028c\x1cd")),
        ("(`` ``)", leaf("``", "``")),
        ("(NN *x*)", leaf("NN", "*x*")),
    ],
)
def test_irregular_forms(text: str, tree: Tree) -> None:
    assert read(text) == [tree]
    assert read(bracketed(tree)) == [tree]


@pytest.mark.parametrize("text", ["", "\n\n", " \r\n\t", "\ufeff", "*x*x*\n*x* (C) *x*"])
def test_a_file_without_trees(text: str) -> None:
    assert read(text) == []


def test_several_trees_on_a_line_and_across_lines() -> None:
    assert read("(A a) (B b)(C\nc) (D (E\ne))") == [
        *(leaf("A", "a"), leaf("B", "b"), leaf("C", "c")),
        Tree("D", (leaf("E", "e"),)),
    ]


def test_a_header_inside_a_tree_is_text() -> None:
    assert read("(NN\n*x*)") == [leaf("NN", "*x*")]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("(S (NN a)))", "1:11", "this closing bracket has no opening one"),
        ("(NN a)\n  )", "2:3", "this closing bracket has no opening one"),
        ("(NN a)\n (S (NN b)\n(NN c)", "2:2", "a closing bracket is missing"),
        ("(NN a) b", "1:8", "'b' stands outside all brackets"),
        ("\ufeffword", "1:1", "'word' stands outside all brackets"),
        ("-4.2\t(NN a)", "1:1", "'-4.2' stands outside all brackets"),
        ("(S (NN a) dog)", "1:11", "the word 'dog' and a bracket stand side by side"),
        ("(S dog (NN a))", "1:8", "the word 'dog' and a bracket stand side by side"),
        ("( S dog\n (NN a))", "2:2", "the word 'dog' and a bracket stand side by side"),
        ("(S (NP dog (NN a)))", "1:12", "the word 'dog' and a bracket stand side by side"),
        ("(S (NP) (NN a))", "1:4", "this bracket is empty"),
        ("(())", "1:2", "this bracket is empty"),
        ("\n(NN\n )", "2:1", "this bracket is empty"),
        ("(-LRB- ()", "1:8", "this bracket is empty"),
    ],
)
def test_what_is_broken_is_refused_with_its_place(text: str, place: str, problem: str) -> None:
    message = refusal(text)
    assert message.startswith(f"file.mrg:{place}: ")
    assert problem in message


def test_a_message_quotes_no_more_than_a_line() -> None:
    message = refusal("\x1b[2J" * 1000)
    assert len(message) < 200
    assert message.isprintable()


@settings(deadline=None)
@given(st.text("()ab *x\t\n\r\ufeff\u2028\x00-") | st.text())
@example("(" * 10_000)
@example(")")
@example("(a" * 1_000 + " b" + ")" * 999)
def test_garbage_is_trees_or_a_refusal_with_line_and_column(text: str) -> None:
    try:
        found = read(text)
    except DataError as error:
        line, column = map(int, re.match(r"file\.mrg:(\d+):(\d+): ", str(error)).groups())
        assert 1 <= column <= len(text.split("\n")[line - 1])
    else:
        assert read("\n".join(map(bracketed, found))) == found


def test_what_went_before_a_broken_tree_is_given() -> None:
    found = read_trees(["(A a)", "(B b))"], "f")
    assert [next(found), next(found)] == [leaf("A", "a"), leaf("B", "b")]
    with pytest.raises(DataError, match=r"^f:2:6: "):
        next(found)


def test_a_missing_bracket_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.trees.penn.MOST_TOKENS", 50_000)
    lines = itertools.chain(["(NN a)", "(S"], itertools.repeat("(S (NN a) (NN b))"))
    with pytest.raises(DataError, match=r"^f:2:1: .*50,000 brackets"):
        list(read_trees(lines, "f"))


def test_memory_does_not_grow_with_the_file() -> None:
    tracemalloc.start()
    lines = itertools.repeat("( (S (NP (DT the) (NN dog))\n(VP (VBZ barks))))", 10_000)
    assert sum(1 for _ in read_trees(lines, "f")) == 10_000
    assert tracemalloc.get_traced_memory()[1] < 100_000  # bytes; one tree takes about a thousand
    tracemalloc.stop()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_from_a_file_however_packed(tmp_path: Path, pack: type[bytes]) -> None:
    path = tmp_path / "trees"
    path.write_bytes(pack("\ufeff(S (NP (PRP he))\r\n(VP (VBD sat)))\r\n(NN 사과)".encode()))
    assert list(read_trees(read_lines(path), str(path))) == [HE_SAT, leaf("NN", "사과")]


def test_scores_come_with_their_trees() -> None:
    failed = ["-Infinity\t(())\n", "1.5\t( ())", "(())\n", "nan\t()"]
    lines = ["4.25\t( (NN a) )\n", "", *failed, "-1e3\t(NN b)"]
    assert list(read_scored_trees(lines, "f")) == [
        (4.25, Tree("", (leaf("NN", "a"),))),
        (-1000.0, leaf("NN", "b")),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(NN a)", r"f:2: '\(NN a\)' is not a score"),
        ("nan\t(NN a)", "f:2: 'nan' is not a score"),
        ("-Infinity\t(NN a)", "f:2: '-Infinity' is not a score"),
        ("1.5\t", "f:2: holds 0 trees"),
        ("1.5\t(NN a) (NN b)", "f:2: holds 2 trees"),
        ("1.5\t(()", "f:2:6: this bracket is empty"),
        ("1.5\t(S\t()", "f:2:8: this bracket is empty"),
        ("1.5\t(S ())", "f:2:8: this bracket is empty"),
        ("1.5\t(NN a", "f:2:5: .*missing"),
        ("1.5\t(NN a))", "f:2:11: this closing bracket has no"),
    ],
)
def test_lines_without_a_score_and_a_tree_are_refused(line: str, message: str) -> None:
    with pytest.raises(DataError, match=f"^{message}"):
        list(read_scored_trees(["1\t(NN a)", line], "f"))


@given(penn_trees())
def test_written_and_read_again(tree: Tree) -> None:
    assert list(read_trees([bracketed(tree)], "f")) == [tree]


@given(penn_trees(), st.integers(1, 60))
def test_pretty_and_read_again(tree: Tree, columns: int) -> None:
    assert list(read_trees(pretty(tree, columns).split("\n"), "f")) == [tree]


def test_3_000_random_trees_written_and_read_again() -> None:
    dice = random.Random(3)
    some = [random_tree(dice) for _ in range(3_000)]
    assert list(read_trees(map(bracketed, some), "f")) == some


@given(trees())
def test_any_tree_is_written_so_that_it_reads_or_refused(tree: Tree) -> None:
    try:
        [again] = read_trees([bracketed(tree)], "f")
    except DataError as error:
        assert "blanks" in str(error)
    else:
        coded = [word.replace("(", "-LRB-").replace(")", "-RRB-") for word in tree.words()]
        assert again.words() == coded
        assert len(again.spans()) == len(tree.spans())


def test_brackets_are_coded_when_written() -> None:
    tree = Tree("NP", (leaf("(", "("), leaf("NN", "f(x)"), leaf("NN", "[1]")))
    assert bracketed(tree) == "(NP (-LRB- -LRB-) (NN f-LRB-x-RRB-) (NN [1]))"


@pytest.mark.parametrize(
    "tree",
    [
        *(leaf("NN", word) for word in ("", " ", " a", "a ", "a  b", "a\tb", "a\n")),
        *(leaf("N N", "a"), leaf("", "a b"), Tree("N\nP", (leaf("NN", "a"),))),
    ],
)
def test_what_brackets_cannot_hold_is_refused(tree: Tree) -> None:
    with pytest.raises(DataError, match="blanks"):
        bracketed(tree)
    with pytest.raises(DataError, match="blanks"):
        pretty(Tree("S", (tree,)))


def test_pretty_breaks_what_does_not_fit() -> None:
    [tree] = read("( (S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .)))")
    assert pretty(tree) == bracketed(tree)
    lines = ["(", "  (S", "    (NP (DT the) (NN dog))", "    (VP (VBZ barks))", "    (. .)))"]
    assert pretty(tree, 26).split("\n") == lines
    assert pretty(tree, 25).split("\n")[2:5] == ["    (NP", "      (DT the)", "      (NN dog))"]


@pytest.mark.parametrize("branch", [False, True])
def test_depth_is_no_obstacle(branch: bool) -> None:
    deep = chain(15_000, branch)
    assert list(read_trees([bracketed(deep)], "f")) == [deep]
    assert list(read_trees(pretty(deep).split("\n"), "f")) == [deep]


def test_width_is_no_obstacle() -> None:
    wide = Tree("S", (leaf("NN", "a"),) * 50_000)
    assert list(read_trees([bracketed(wide)], "f")) == [wide]


def test_words_as_treebanks_and_as_people_write_them() -> None:
    assert plain_word("f-LRB-x-RRB--LSB-0-RSB--LCB--RCB-") == "f(x)[0]{}"
    assert plain_word("-LRB-") == "("
    assert plain_word("1\\/2") == "1/2"
    assert plain_word("\\*") == "*"


CODES = str.maketrans(
    {"(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-"}
)


@given(st.text("abc()[]{} 가", max_size=8))
def test_a_coded_word_is_decoded(word: str) -> None:
    assert plain_word(word.translate(CODES)) == word
