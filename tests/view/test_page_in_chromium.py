"""The HTML page in Chromium, opened from the file system without a network."""

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from regard.run.model_directory import Model
from regard.view.look import Look, look_at
from regard.view.page import attention_page
from tabs import Tab
from view.conftest import TARGET, a_look

pytestmark = pytest.mark.browser
LOOK = a_look(6, 2, 4)


Tabs = Callable[..., Tab]


class Opened:
    """An opened page, the URLs that it requested, and its errors."""

    def __init__(self, tab: Tabs, path: Path, **options: object):
        one = tab(offline=True, **options)
        self.page, self.asked = one.page, one.asked
        self._one = one
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#map td")
        assert self.asked == [path.as_uri()]
        assert self.wrong == []

    @property
    def wrong(self) -> list[str]:
        return self._one.wrong + self._one.logged

    def said(self) -> str:
        return str(self.page.inner_text("#said"))


def written(folder: Path, look: Look) -> Path:
    path = folder / "look.html"
    path.write_text(attention_page(look), "utf-8")
    return path


@pytest.fixture
def opened(tab: Tabs, tmp_path: Path) -> Opened:
    return Opened(tab, written(tmp_path, LOOK))


def strongest(layer: int, query: int) -> str:
    """The text that the page should show for a query of the encoder, for every head."""
    parts = []
    for head, row in enumerate(LOOK.weights["encoder"][layer, :, query], 1):
        parts.append(f"head {head} {LOOK.source[row.argmax()]} {round(100 * row.max())} %")
    return ", ".join(parts)


def test_a_word_is_pinned_by_mouse(opened: Opened) -> None:
    page = opened.page
    page.click('[id="left 2"]')
    page.mouse.move(0, 0)
    assert opened.said() == f"“word2” attends most to: {strongest(1, 2)}"
    assert page.get_attribute('[id="left 2"]', "aria-pressed") == "true"
    assert page.locator("#strokes line").count() < 4 * 7 + 1
    page.click('[id="left 2"]')
    page.mouse.move(0, 0)
    assert opened.said() == ""


def test_escape_releases_a_word_that_the_mouse_has_left(opened: Opened) -> None:
    page = opened.page
    page.click('[id="left 2"]')
    page.mouse.move(0, 0)
    page.keyboard.press("Escape")
    assert page.get_attribute('[id="left 2"]', "aria-pressed") == "false"
    assert opened.said() == ""


def test_all_of_it_by_keyboard(opened: Opened) -> None:
    page = opened.page
    page.focus("[name=kind]:checked")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")  # layer 2 -> 1
    assert page.evaluate("document.activeElement.value") == "0"
    for _ in range(7):  # four heads, two buttons, the first word
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "left 0"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert opened.said() == f"“word1” attends most to: {strongest(0, 1)}"
    page.keyboard.press("ArrowRight")
    assert opened.said().startswith("“word1” is attended to most by: head 1 ")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "save"
    assert opened.said() == ""
    assert opened.wrong == []


def test_heads_are_chosen_alone_and_together(opened: Opened) -> None:
    page = opened.page
    every = page.locator("#strokes line").count()
    page.click("#thumbnails li:nth-child(3) button")
    assert page.locator("[name=head]:checked").evaluate_all("all => all.map(x => x.value)") == ["2"]
    shown = int((LOOK.weights["encoder"][1, 2] >= 0.02).sum())
    assert abs(page.locator("#strokes line").count() - shown) <= 2  # weights are rounded to a byte
    assert page.locator("#strokes line").count() < every
    page.click("#none")
    assert page.locator("#strokes line").count() == 0
    page.click("#all")
    assert page.locator("#strokes line").count() == every


def test_the_heat_map_is_a_table_of_what_is_chosen(opened: Opened) -> None:
    page = opened.page
    page.check("[name=kind][value=cross]")
    page.click("#thumbnails li:nth-child(1) button")
    cells = page.locator("#map tbody tr:nth-child(2) td").all_inner_texts()
    expected = [round(100 * float(x)) for x in LOOK.weights["cross"][1, 0, 1]]
    assert all(abs(int(c.split()[0]) - e) <= 1 for c, e in zip(cells, expected, strict=True))
    assert page.inner_text("#map tbody tr:nth-child(2) th") == "Wort1"


def test_a_decoder_of_fewer_heads(tab: Tabs, tmp_path: Path) -> None:
    look = a_look(4, 2, 4, decoder_heads=2)
    opened = Opened(tab, written(tmp_path, look))
    page = opened.page
    for kind, heads in (("cross", 2), ("encoder", 4), ("decoder", 2)):
        page.check(f"[name=kind][value={kind}]")
        assert page.locator("#thumbnails li").count() == heads
        assert page.locator("[name=head]:visible").count() == heads
        cells = page.locator("#map tbody tr:nth-child(2) td").all_inner_texts()
        expected = [round(100 * float(x)) for x in look.weights[kind][1, :, 1].mean(0)]
        assert all(abs(int(c.split()[0]) - e) <= 1 for c, e in zip(cells, expected, strict=True))
    assert opened.wrong == []


def test_the_window_changes(opened: Opened) -> None:
    page = opened.page
    page.click('[id="left 2"]')
    page.set_viewport_size({"width": 340, "height": 700})
    width = "document.querySelector('#lines svg').clientWidth"
    for _ in range(100):  # poll from here: the page's policy forbids scripts that poll inside it
        if page.evaluate(width) < 330:
            break
        page.wait_for_timeout(50)
    assert page.evaluate(width) < 330
    assert page.get_attribute('[id="left 2"]', "aria-pressed") == "true"
    assert opened.said() == f"“word2” attends most to: {strongest(1, 2)}"


def test_saved_as_svg(opened: Opened, tmp_path: Path) -> None:
    with opened.page.expect_download() as download:
        opened.page.click("#save")
    assert download.value.suggested_filename == "encoder-layer-2.svg"
    download.value.save_as(tmp_path / "saved.svg")
    saved = ElementTree.parse(tmp_path / "saved.svg").getroot()
    texts = [text.text for text in saved.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [*LOOK.source, *LOOK.source]
    assert saved.get("color", "").startswith("rgb(")


# The page's style asks for the scheme and not for the width, so that either is right by itself.
@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (1200, "dark")])
def test_narrow_and_wide_light_and_dark_for_everyone(
    tab: Tabs, model: Model, tmp_path: Path, width: int, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    path = written(tmp_path, look_at(model, "A dog sleeps.", listen=True, by_words=True))
    opened = Opened(tab, path, width=width, scheme=scheme, bypass_csp=True)
    opened.page.click('[id="left 1"]')
    opened.page.click("summary")
    assert opened.page.locator("#steps table").count() > 1
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.Axe().run(opened.page)
    assert found.violations_count == 0, found.generate_report()


def test_hostile_text_is_shown_as_it_was_typed(tab: Tabs, model: Model, tmp_path: Path) -> None:
    text = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    opened = Opened(tab, written(tmp_path, look_at(model, text, TARGET)))
    opened.page.click("[id='left 1']")
    assert opened.page.inner_text("#sentence") == text
    assert opened.wrong == []
    assert len(opened.asked) == 1
