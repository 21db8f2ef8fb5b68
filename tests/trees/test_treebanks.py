"""Every tree of real treebanks is restored; EVALB counts the same words and brackets."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.files.lines import read_lines
from regard.trees.linearise import delinearise, linearise
from regard.trees.penn import bracketed, pretty, read_scored_trees, read_trees
from regard.trees.strip import OUTER, TRACE, category, stripped, without_traces
from regard.trees.tree import Tree

pytestmark = pytest.mark.data

TREES = {
    "wsj-sample/train.mrg": 3396,
    "wsj-sample/dev.mrg": 273,
    "wsj-sample/test.mrg": 245,
    "craft/dev.mrg": 2780,
    "craft/train.mrg": 18951,
}
READ = {"craft/train.mrg": 9}
"""Of the largest treebank one tree in so many is read and written; of the others, each tree."""
STEPS = {"wsj-sample/train.mrg": 3, "craft/dev.mrg": 9, "craft/train.mrg": 2}
"""Of a large treebank one of the trees that are read, in so many, becomes a sequence."""
PUNCTUATION = {",", ":", "``", "''", "."}
banks = pytest.mark.parametrize("name", TREES)


def trees(path: Path) -> Iterator[Tree]:
    return read_trees(read_lines(path), str(path))


@banks
def test_each_tree_is_the_line_it_was_read_from_and_comes_back_from_its_sequence(
    regard_data: Path, name: str
) -> None:
    path, every, step = regard_data / name, READ.get(name, 1), STEPS.get(name, 1)
    lines = [*read_lines(path)]
    assert len(lines) == TREES[name]
    count = words = brackets = 0
    for line, tree in zip(lines[::every], read_trees(lines[::every], name), strict=True):
        assert bracketed(tree) == line
        if count % step == 0:
            assert_comes_back(tree, with_traces=count % 5 == 0)
        count += 1
        words += len(tree.words())
        brackets += len(tree.words()) + len(tree.spans())
    text = "\n".join(path.read_text().split("\n")[:-1:every])
    assert count == len(lines[::every])
    assert brackets == text.count("(")
    assert words == len(re.findall(r"[^()\s]\)", text))


def assert_comes_back(tree: Tree, *, with_traces: bool) -> None:
    """Assert that a tree is restored from its sequence, stripped and perhaps whole."""
    plain = stripped(tree)
    assert plain is not None
    assert plain.words() == [leaf.word for leaf in tree.leaves() if leaf.label != TRACE]
    assert plain.label not in OUTER
    assert all(node.label == category(node.label) for node in plain.nodes())
    for one in (plain, tree)[: 2 if with_traces else 1]:
        words, tags = one.words(), one.tags()
        assert delinearise(linearise(one), words) == one
        assert delinearise(linearise(one, "normalised"), words, tags) == one


def test_over_several_lines_each_tree_reads_the_same(regard_data: Path) -> None:
    craft = itertools.islice(trees(regard_data / "craft/dev.mrg"), 0, None, 9)
    some = [*trees(regard_data / "wsj-sample/test.mrg"), *craft]
    lines = "\n".join(pretty(tree, 60) for tree in some).split("\n")
    assert len(lines) > 10 * len(some)
    assert list(read_trees(lines, "pretty")) == some


def test_evalb_counts_the_same_words_and_brackets(regard_data: Path) -> None:
    case = regard_data / "oracles/evalb/open/wsj200-raw-gold"
    scored = re.compile(r" +\d+ +(\d+) +0 .{14} +\d+ +(\d+)")  # the length, gold brackets
    rows = (case / "result.txt").read_text().split("\n")[3:203]
    compared = 0
    for tree, row in zip(trees(case / "gold.trees"), rows, strict=True):
        if (counts := scored.match(row)) is None:  # where the parse had another length
            continue
        plain = without_traces(tree)
        assert plain is not None
        tags = plain.tags()
        counted = [s for s in plain.spans() if not set(tags[s.start : s.end]) <= PUNCTUATION]
        assert (len(tags), len(counted)) == (int(counts[1]), int(counts[2])), row
        compared += 1
    assert compared == 186


def test_parses_with_their_scores(regard_data: Path) -> None:
    path = regard_data / "raw-en/reuters.berkeley.mrg.xz"
    scores = 0
    for _, (score, tree) in zip(
        range(1000), read_scored_trees(read_lines(path), "r"), strict=False
    ):
        plain = stripped(tree)
        assert plain is not None
        assert score < 5 <= len(plain.words()) <= 40
        assert delinearise(linearise(plain), plain.words()) == plain
        scores += 1
    assert scores == 1000
