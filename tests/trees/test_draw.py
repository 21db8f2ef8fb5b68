"""Drawings: in the terminal, from the top or as an outline, and as SVG."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from rich.cells import cell_len

from regard.errors import DataError
from regard.trees.draw import drawn, outlined
from regard.trees.layout import MOST_LEVELS, placed
from regard.trees.penn import read_trees
from regard.trees.svg import svg
from regard.trees.tree import Tree
from trees.strategies import chain, trees

BARKS = "(S (NP (DT the) (NN dog)) (VP (VBZ barks)))"
NAMESPACE = "{http://www.w3.org/2000/svg}"


def tree(text: str) -> Tree:
    return next(read_trees([text], "hand"))


def test_from_the_top() -> None:
    assert drawn(tree(BARKS)).split("\n") == [
        "       S",
        "   ┌───┴────┐",
        "  NP       VP",
        " ┌─┴──┐     │",
        "DT   NN    VBZ",
        " │    │     │",
        "the  dog  barks",
    ]


def test_wide_characters_take_two_columns() -> None:
    assert drawn(tree("(NP (NNG 사과) (NNP 中) (SF .))")).split("\n") == [
        "     NP",
        "  ┌───┴┬───┐",
        " NNG  NNP  SF",
        "  │    │   │",
        "사과  中   .",
    ]


def test_a_branch_between_its_children() -> None:
    assert drawn(tree("(S (A a) (B b) (C c))")).split("\n")[1] == "┌──┼──┐"
    assert drawn(tree("(S (A a) (B b))")).split("\n")[1] == "┌┴─┐"
    assert drawn(tree("(S (A a) (B b) (C ccccccccc))")).split("\n")[1] == "┌──┬─┴────┐"


def test_an_outline_where_it_is_too_wide() -> None:
    lines = ["S", "├─ NP", "│  ├─ DT the", "│  └─ NN dog", "└─ VP", "   └─ VBZ barks"]
    assert drawn(tree(BARKS), 14).split("\n") == lines
    assert drawn(tree(BARKS), 15) == drawn(tree(BARKS))
    assert outlined(tree("(NN dog)")) == "NN dog"


@given(trees())
def test_nothing_overlaps_and_children_hang_below(tree: Tree) -> None:
    rows: dict[int, int] = {}
    centres: dict[int, list[int]] = {}
    hanging: dict[int, list[int]] = {}
    for item in placed(tree):
        assert item.left >= rows.get(item.level, 0)
        assert item.left <= item.centre <= item.left + max(0, item.width - 1)
        rows[item.level] = item.left + item.width + 2
        centres.setdefault(item.level, []).append(item.centre)
        hanging.setdefault(item.level + 1, []).extend(item.below)
    assert all(hanging.get(level, []) == at for level, at in centres.items() if level)


@given(trees())
def test_a_drawing_commands_no_terminal(tree: Tree) -> None:
    for picture in (drawn(tree), outlined(tree), svg(tree)):
        assert not any(c in picture for c in "\x1b\r\x85\u2028\u202e\0")
    assert len(outlined(tree).split("\n")) == len(list(tree.nodes()))
    levels = 1 + max(item.level for item in placed(tree))
    assert len(drawn(tree).split("\n")) == 2 * levels - 1


@given(trees())
def test_svg_is_well_formed_and_holds_every_label_and_word(tree: Tree) -> None:
    picture = ElementTree.fromstring(svg(tree))
    width, height = int(picture.attrib["width"]), int(picture.attrib["height"])
    assert picture.attrib["viewBox"] == f"0 0 {width} {height}"
    texts = picture.findall(f"{NAMESPACE}text")
    assert len(texts) == len(list(tree.nodes())) + len(tree.words())
    for text in texts:
        assert 0 < float(text.attrib["x"]) < width
        assert 0 < float(text.attrib["y"]) < height
    path = picture.find(f"{NAMESPACE}path")
    assert path is not None
    assert path.attrib["d"].count("M") == len(texts) - 1


def test_svg_is_escaped_and_self_contained() -> None:
    text = svg(Tree("<script>", (Tree('"&', word="</svg><script>alert(1)</script>"),)))
    assert "<script" not in text
    root = ElementTree.fromstring(text)
    assert [t.text for t in root.iter(f"{NAMESPACE}text")] == [
        *("<script>", '"&', "</svg><script>alert(1)</script>")
    ]
    assert not {"href", "src", "style", "onload"} & {key for e in root.iter() for key in e.attrib}
    colours = {e.attrib[key] for e in root.iter() for key in ("fill", "stroke") if key in e.attrib}
    assert colours == {"currentColor"}


@pytest.mark.parametrize("draw", [drawn, outlined, svg])
def test_a_tree_too_deep_to_draw_is_refused(draw: type[str]) -> None:
    assert draw(chain(MOST_LEVELS - 1, branch=True))
    with pytest.raises(DataError, match="a tree of 50001 levels cannot be drawn: at most 1000 can"):
        draw(chain(50_000))


def test_width_is_measured_in_cells() -> None:
    lines = drawn(tree("(NP (NNG 사과나무) (NNG 밑))")).split("\n")
    assert [cell_len(line) for line in lines] == [8, 12, 13, 12, 12]
