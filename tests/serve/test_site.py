"""The page of the server in Chromium, mostly with the fake translator that shouts."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from regard.mending import mend
from regard.serve import engine
from regard.serve.app import create_app
from regard.serve.keys import Keys
from regard.serve.languages import LanguagePair
from regard.serve.service import ServerLimits
from regard.translation import Translator
from serve.conftest import Shouting, listening
from tabs import Tab

pytestmark = pytest.mark.browser
playwright = pytest.importorskip("playwright.sync_api")
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def address() -> Iterator[Callable[..., str]]:
    """A function that gives the address of a server; it runs until the end of the module."""
    with ExitStack() as running:

        @cache
        def serving(
            served: tuple[tuple[LanguagePair, Translator], ...],
            keys: tuple[str, ...],
            limits: ServerLimits | None,
        ) -> str:
            app = create_app(served, limits=limits, keys=Keys(keys) if keys else None)
            return running.enter_context(listening(app))

        yield serving


@pytest.fixture(scope="module")
def one_shouting() -> Shouting:
    return Shouting()


@pytest.fixture
def shouting(one_shouting: Shouting) -> Iterator[Shouting]:
    """The fake translator, the same in all tests, so that they can have the same server."""
    one_shouting.said = []
    yield one_shouting
    one_shouting.gate.set()


@pytest.fixture
def site(
    address: Callable[..., str], tab: Callable[..., Tab], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """A function that opens the page of a server with these models; errors in it fail the test."""
    opened: list[tuple[str, Tab]] = []

    def begin(
        *models: Translator | tuple[LanguagePair, Translator],
        keys: tuple[str, ...] = (),
        limits: ServerLimits | None = None,
        **of: Any,
    ) -> Any:
        usual = [LanguagePair("en", "de"), LanguagePair("de", "en")]
        served = tuple(m if isinstance(m, tuple) else (usual[i], m) for i, m in enumerate(models))
        if isinstance(served[0][1], Shouting):  # the fake translator has no heads
            monkeypatch.setattr(engine.Engine, "_attended", lambda *given: given[-1])
            monkeypatch.setattr(mend, "search_again", lambda _, some: [[] for _ in some])
        at, one = address(served, keys, limits), tab(**({"locale": "en-GB"} | of))
        opened.append((at, one))
        one.page.goto(at)
        one.page.wait_for_selector("#target option", state="attached")
        return one.page

    yield begin
    for at, one in opened:
        assert one.wrong == []
        assert [url for url in one.asked if not url.startswith((at, "about:"))] == []


def result(page: Any, text: str) -> None:
    """Wait until the translation is this text."""
    playwright.expect(page.locator("#result")).to_have_text(text, use_inner_text=True)
    playwright.expect(page.locator("#result")).to_have_attribute("aria-busy", "false")


def test_what_is_typed_is_translated_with_its_lines(site: Open, shouting: Shouting) -> None:
    page = site(shouting)
    page.locator("#text").press_sequentially("one.\n- two. three.")
    result(page, "ONE.\n- TWO. THREE.")
    assert page.inner_text("#count") == "18 / 10000 characters"
    assert page.locator("#others > li").count() == 3
    assert page.inner_text("#others > li:nth-child(2) li:nth-child(2)") == "TWO.! -1.000"
    page.fill("#text", "")
    result(page, "")


def test_a_translation_is_shown_while_it_is_written(site: Open, shouting: Shouting) -> None:
    page = site(shouting)
    shouting.gate.clear()
    shouting.said = ["ON"]
    page.fill("#text", "one. two.")
    playwright.expect(page.locator("#result .partial").first).to_have_text("ON")
    assert page.get_attribute("#result", "aria-busy") == "true"
    shouting.gate.set()
    result(page, "ONE. TWO.")
    assert page.locator("#result .partial").count() == 0


def test_what_is_typed_meanwhile_takes_the_place_of_what_was_asked(
    site: Open, shouting: Shouting
) -> None:
    page = site(shouting)
    shouting.gate.clear()
    page.fill("#text", "first")
    playwright.expect(page.locator("#result")).to_have_attribute("aria-busy", "true")
    page.fill("#text", "second")
    page.keyboard.press("Control+Enter")
    shouting.gate.set()
    result(page, "SECOND")


def test_a_word_shows_where_it_attends(site: Open, translator: Translator) -> None:
    page = site(translator)
    page.fill("#text", "the dog sees the cat\nthe bird sleeps")
    page.wait_for_selector("#others > li:nth-child(2)")
    words = page.locator("#result .word")
    words.first.hover()
    said = page.inner_text("#said")
    assert said.startswith(f"“{words.first.inner_text()}” attends most to “")
    assert page.inner_text("#echo").split() == ["the", "dog", "sees", "the", "cat", "</s>"]
    words.first.focus()
    for _ in range(words.count() - 1):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#said").startswith(f"“{words.last.inner_text()}” attends")
    assert page.inner_text("#echo").split() == ["the", "bird", "sleeps", "</s>"]


def test_the_heads_are_a_tab(site: Open, translator: Translator) -> None:
    page = site(translator)
    page.fill("#text", "the dog sees the cat\nthe bird sleeps")
    page.wait_for_selector("#others > li:nth-child(2)")
    page.click("#tab-alternatives")
    page.keyboard.press("ArrowRight")
    frame = page.frame_locator("#frame")
    playwright.expect(frame.locator("#sentence")).to_have_text("the dog sees the cat")
    frame.locator("#map td").first.wait_for()
    page.select_option("#which", "1")
    playwright.expect(frame.locator("#sentence")).to_have_text("the bird sleeps")


def test_the_translation_is_copied(site: Open, shouting: Shouting) -> None:
    page = site(shouting, permissions=["clipboard-read", "clipboard-write"])
    page.fill("#text", "one.\n- two.")
    result(page, "ONE.\n- TWO.")
    page.click("#copy")
    playwright.expect(page.locator("#said")).to_have_text("copied")
    assert page.evaluate("navigator.clipboard.readText()") == "ONE.\n- TWO."


def test_languages_are_swapped_and_the_translation_with_them(
    site: Open, shouting: Shouting
) -> None:
    page = site(shouting, shouting)
    page.fill("#text", "one")
    result(page, "ONE")
    page.click("#swap")
    assert page.input_value("#text") == "ONE"
    assert (page.input_value("#source"), page.input_value("#target")) == ("de", "en")
    assert page.get_attribute("#result", "lang") == "en"


def test_a_refusal_is_said_and_the_text_stays(site: Open, shouting: Shouting) -> None:
    page = site(shouting, keys=("비밀",))
    page.fill("#text", "one")
    playwright.expect(page.locator("#problem")).to_contain_text("API key")
    assert page.input_value("#text") == "one"
    page.fill("#key", "비밀")
    page.keyboard.press("Tab")
    result(page, "ONE")
    assert page.inner_text("#problem") == ""


def test_a_failure_within_a_stream_is_said(site: Open, shouting: Shouting) -> None:
    page = site(shouting, limits=ServerLimits(seconds=0.3))
    shouting.gate.clear()
    page.fill("#text", "one")
    playwright.expect(page.locator("#problem")).to_contain_text("within 0.3 seconds")


def test_a_failure_of_the_server_is_said(
    site: Open, shouting: Shouting, caplog: pytest.LogCaptureFixture
) -> None:
    page = site(shouting)
    page.fill("#text", "explode")
    playwright.expect(page.locator("#problem")).to_have_text("Internal error")
    assert "without completing" not in caplog.text  # else the browser discards what it has read
    page.fill("#text", "one")
    result(page, "ONE")


def test_the_last_syllable_of_hangul_is_asked_for(site: Open, shouting: Shouting) -> None:
    page = site(shouting)
    page.focus("#text")
    keyboard = page.context.new_cdp_session(page)
    for syllable in ("ㅎ", "하", "한"):  # the syllable is being composed and not yet confirmed
        composing = {"text": syllable, "selectionStart": 1, "selectionEnd": 1}
        keyboard.send("Input.imeSetComposition", composing)
    result(page, "한")


def test_languages_without_a_name_keep_their_code(site: Open, shouting: Shouting) -> None:
    page = site((LanguagePair("pt_BR", "x-unknown-here"), shouting))
    assert page.get_attribute("#text", "lang") == "pt-BR"
    assert page.inner_text("#source option") == "Brazilian Portuguese"
    assert page.inner_text("#target option")
    page.fill("#text", "one")
    result(page, "ONE")


def test_an_old_word_may_be_pointed_at_while_a_new_text_is_asked_for(
    site: Open, translator: Translator
) -> None:
    page = site(translator)
    page.fill("#text", "the dog sees the cat")
    word = page.locator("#result .word").first
    word.wait_for()
    page.route("**/v1/translate", lambda route: None)  # the server never answers
    page.fill("#text", "the bird")
    playwright.expect(page.locator("#result")).to_have_attribute("aria-busy", "true")
    word.hover()
    assert page.inner_text("#said").startswith(f"“{word.inner_text()}” attends")


def test_a_busy_server_is_asked_again(site: Open, shouting: Shouting) -> None:
    page = site(shouting)
    busy = {"status": 503, "headers": {"Retry-After": "1"}, "body": '{"error": "busy"}'}
    page.route("**/v1/translate", lambda route: route.fulfill(**busy), times=1)
    page.fill("#text", "one")
    playwright.expect(page.locator("#problem")).to_have_text(
        "The server is busy; trying again in 1 s."
    )
    result(page, "ONE")


def test_a_lost_server_is_said(site: Open, shouting: Shouting) -> None:
    page = site(shouting)
    page.route("**/v1/translate", lambda route: route.abort())
    page.fill("#text", "one")
    playwright.expect(page.locator("#problem")).to_contain_text("The server does not answer.")


def test_flaws_are_named(site: Open, shouting: Shouting) -> None:
    page = site(shouting)
    page.fill("#text", "THE SAME TEXT")
    playwright.expect(page.locator("#flaws")).to_have_text("may not be translated")


def test_hostile_text_is_only_text(site: Open, shouting: Shouting) -> None:
    page = site(shouting)
    text = "<img src=x onerror=alert(1)> </script><script>alert(2)</script>"
    page.fill("#text", text)
    result(page, text.upper())
    assert page.locator("#result img, #result script").count() == 0


def test_it_speaks_korean(site: Open, shouting: Shouting) -> None:
    page = site(shouting, locale="ko-KR")
    assert page.get_attribute("html", "lang") == "ko"
    assert page.inner_text("#tab-alternatives") == "다른 번역"
    assert page.locator("#source option").inner_text() == "영어"
    page.fill("#text", "one")
    result(page, "ONE")
    page.select_option("#interface", "en")
    assert page.inner_text("#tab-alternatives") == "Alternatives"
    result(page, "ONE")


@pytest.mark.parametrize(
    ("text", "said"),
    [("explode", "서버에서 오류가 났습니다."), ("slow", "제한 시간 안에 번역하지 못했습니다.")],
)
def test_failures_are_said_in_korean(site: Open, shouting: Shouting, text: str, said: str) -> None:
    page = site(shouting, locale="ko-KR", limits=ServerLimits(seconds=0.5))
    if text == "slow":
        shouting.gate.clear()
    page.fill("#text", text)
    playwright.expect(page.locator("#problem")).to_contain_text(said)


def test_refusals_are_said_in_korean(site: Open, shouting: Shouting) -> None:
    limits = ServerLimits(a_minute=1)
    page = site(shouting, locale="ko-KR", keys=("secret",), limits=limits)
    problem = page.locator("#problem")
    page.fill("#text", "one")
    playwright.expect(problem).to_contain_text("API 키가 필요합니다.")
    page.fill("#key", "wrong")
    page.keyboard.press("Tab")
    playwright.expect(problem).to_have_text("API 키가 올바르지 않습니다.")
    page.fill("#key", "guess")
    page.keyboard.press("Tab")
    playwright.expect(problem).to_contain_text("요청이 너무 잦습니다.")


def test_attention_that_cannot_be_shown_is_said_in_korean(site: Open, shouting: Shouting) -> None:
    page = site(shouting, locale="ko-KR")
    page.fill("#text", "one")
    result(page, "ONE")
    page.click("#tab-attention")
    playwright.expect(page.locator("#problem")).to_have_text(
        "이 모델은 어텐션을 보여 주지 않습니다."
    )


def test_both_interfaces_have_every_text(site: Open, shouting: Shouting) -> None:
    page = site(shouting)
    keys = "o => Object.entries(o).flatMap(([k, v]) => [k, ...Object.keys(v.echo ? v : {})]).sort()"
    english, korean = (page.evaluate(f"({keys})(TEXTS.{name})") for name in ("en", "ko"))
    assert english == korean
    used = "[...document.querySelectorAll('[data-text]')].map(x => x.dataset.text)"
    texts = set(page.evaluate(used))
    assert texts
    assert texts <= set(english)


@pytest.mark.parametrize(("scheme", "width"), [("light", 320), ("dark", 1200)])
def test_narrow_and_wide_light_and_dark_for_everyone(
    site: Open, translator: Translator, scheme: str, width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = site(translator, width=width, scheme=scheme, bypass_csp=True)
    page.fill("#text", "the dog sees the cat")
    page.locator("#result .word").first.hover()
    page.click("#tab-attention")
    page.frame_locator("#frame").locator("#map td").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
