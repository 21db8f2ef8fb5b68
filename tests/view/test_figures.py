"""The paper's figures, and the heat map in the terminal."""

import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from regard.errors import MissingExtra
from regard.view.drawing import FORMATS, plotting
from regard.view.figures import FAINT, figure, sharpest
from regard.view.heat import heat
from view.conftest import a_look

LOOK = a_look(5, 2, 3)
SVG = "{http://www.w3.org/2000/svg}"


def strokes(number: int, heads: list[int], word: int | None) -> int:
    """The number of lines between words in a figure."""
    picture = ElementTree.fromstring(figure(LOOK, number, "svg", "encoder", 1, heads, word))
    paths = [path for group in picture.iter(f"{SVG}g") if (group.get("id") or "").startswith("line")
             for path in group.iter(f"{SVG}path")]  # fmt: skip
    return len(paths)


def strong(heads: list[int], word: int | None) -> int:
    weights = LOOK.weights["encoder"][1, heads]
    return int((weights[:, [word] if word is not None else slice(None)] >= FAINT).sum())


def test_each_figure_has_the_lines_of_its_panels() -> None:
    assert strokes(3, [0, 1, 2], 4) == strong([0, 1, 2], 4)
    assert strokes(4, [1, 2], 4) == strong([1], None) + strong([1, 2], 4)
    assert strokes(5, [2, 0], None) == strong([2], None) + strong([0], None)


def test_words_are_text_above_and_below() -> None:
    text = figure(LOOK, 3, "svg", "cross", 0, [0], 1).decode()
    words = re.findall(r">([^<>\s]+)</text>", text)
    assert sorted(words) == sorted([*LOOK.written, *LOOK.source]) or sorted(words) == sorted(
        [w.replace("<", "&lt;").replace(">", "&gt;") for w in (*LOOK.written, *LOOK.source)]
    )
    assert text == figure(LOOK, 3, "svg", "cross", 0, [0], 1).decode()  # reproducible


@pytest.mark.parametrize(("form", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<")])
def test_formats(form: str, begins: bytes) -> None:
    assert form in FORMATS
    assert figure(LOOK, 5, form, "decoder", 0, [0, 1], None).startswith(begins)


def test_words_that_are_formulas_or_have_no_glyph() -> None:
    texts = ("$x^$", "한국어", "a_b", "</s>", "\\frac", "x")
    odd = a_look(5, 2, 3).__class__(**{**vars(LOOK), "source": texts})
    assert figure(odd, 3, "png", "encoder", 0, [0], 0).startswith(b"\x89PNG")


def test_long_korean_words_are_inside_the_figure() -> None:
    def inches_below(word: str) -> float:
        """From where the keys begin to the lower edge."""
        texts = (word, "b", "c", "d", "</s>")
        one = a_look(5, 2, 3).__class__(**{**vars(LOOK), "source": texts})
        text = figure(one, 3, "svg", "encoder", 0, [0], 0).decode()
        height = float(re.findall(r'viewBox="0 0 [\d.]+ ([\d.]+)"', text)[0])
        return (height - min(above(text, key) for key in ("b", "c", "d"))) / 72

    def above(text: str, key: str) -> float:
        """The points between the upper edge and the lower of the two words `key`."""
        return max(float(y) for y in re.findall(rf"translate\([\d.]+ ([\d.]+)\)[^>]*>{key}<", text))

    assert inches_below("가" * 20) - inches_below("a") > 19 * 9 / 72 * 0.95


def test_a_weight_that_rounding_made_larger_than_1() -> None:
    look = a_look(2, 1, 1)
    look.weights["cross"][:] = np.nextafter(np.float32(1), np.float32(2))
    assert figure(look, 3, "svg", "cross", 0, [0], 0).startswith(b"<")


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        MissingExtra, match=r"--figure needs an extra: pip install 'regard\[view\]'"
    ):
        figure(LOOK, 3, "svg", "encoder", 0, [0], 0)


def test_the_sharpest_heads() -> None:
    look = a_look(2, 1, 3)
    rows = np.full((3, 3, 3), 1 / 3, np.float32)
    rows[2] = np.eye(3)
    rows[0, 1] = [0.1, 0.9, 0.0]
    rows[1, 1] = [0.0, 1.0, 0.0]
    rows[2, 1] = [0.5, 0.5, 0.0]
    look.weights["encoder"] = rows[None]
    assert sharpest(look, "encoder", 0, None, 3) == [2, 1, 0]
    assert sharpest(look, "encoder", 0, 1, 2) == [1, 0]


def test_the_terminal_by_hand() -> None:
    look = a_look(2, 1, 2)
    look.weights["cross"] = np.array(
        [[[[1.0, 0, 0], [0, 0.5, 0.5], [0.1, 0.2, 0.7]]] * 2], np.float32
    )
    *_, first, second, third = heat(look, "cross", 0, [0, 1]).splitlines()
    assert first.rstrip() == "Wort0 ██     word0 100 %"
    assert second == "Wort1   ▒▒▒▒ word1 50 %"
    assert third == " </s> ··░░▓▓ </s> 70 %"


def test_wide_characters_keep_the_columns() -> None:
    texts = ("고양이", "a", "</s>")
    look = a_look(2, 1, 2).__class__(**{**vars(a_look(2, 1, 2)), "source": texts})
    lines = heat(look, "encoder", 0, [0]).splitlines()
    assert lines[0] == "encoder self-attention, layer 1, head 1"
    assert lines[-3].startswith("고양이 ")
    assert lines[-2].startswith("     a ")


@pytest.mark.parametrize("installed", [[], ["Comic", "NanumGothic"]])
def test_figures_have_a_font_for_korean_if_one_is_installed(
    installed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib
    from matplotlib.font_manager import fontManager

    monkeypatch.setattr(fontManager, "get_font_names", lambda: installed)
    with plotting():
        assert matplotlib.rcParams["font.family"] == ["sans-serif", *installed[1:]]
