"""Language pairs, names of languages, and language detection."""

import pytest

from regard.errors import RecipeError
from regard.serve.languages import Detector, LanguagePair, language_name


def test_a_pair_is_two_codes() -> None:
    assert LanguagePair.read("en-de") == LanguagePair("en", "de")
    assert LanguagePair.read("pt-BR:en") == LanguagePair("pt-BR", "en")
    assert str(LanguagePair("en", "de")) == "en-de"


def test_codes_are_spelt_as_usual_however_they_are_given() -> None:
    assert LanguagePair.read("EN-De") == LanguagePair("EN", "DE") == LanguagePair("en", "de")
    assert str(LanguagePair.read("pt_br:zh_HANS")) == "pt-BR-zh-Hans"


@pytest.mark.parametrize(
    "text",
    ["", "en", "en-", "-de", "en-en", "english-german", "e1-de", "en de", "en-EN", "pt_BR:pt-br",
     "pt-BR-en", "en-pt-BR", "zh-Hans-en"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="not a language pair"):
        LanguagePair.read(text)


@pytest.mark.parametrize(("text", "right"), [("en-kr", "ko"), ("jp-en", "ja"), ("pt-BR:cn", "zh")])
def test_codes_of_countries_are_refused(text: str, right: str) -> None:
    with pytest.raises(RecipeError, match=f"is {right}$"):
        LanguagePair.read(text)


def test_languages_have_names_and_others_go_by_their_code() -> None:
    assert (language_name("de"), language_name("tlh")) == ("German", "tlh")


def test_of_the_served_languages_the_right_one_is_told() -> None:
    detector = Detector(["de", "en", "ko"])
    for text, code in (
        ("The weather is fine today.", "en"),
        ("Das Wetter ist heute schön.", "de"),
        ("오늘은 날씨가 좋습니다.", "ko"),
    ):
        ranked = detector.rank(text)
        assert ranked[0].language == code
        assert {d.language for d in ranked} == {"de", "en", "ko"}
        assert all(0 <= d.confidence <= 100 for d in ranked)


def test_a_language_of_a_region_is_told_by_the_language() -> None:
    bom_dia = "Bom dia, tudo bem com você?"
    first, *_ = Detector(["en", "pt-BR"]).rank(bom_dia)
    assert first.language == "pt-BR"
    assert first.confidence > 50
    european, brazilian, english = Detector(["en", "pt-BR", "pt-PT"]).rank(bom_dia)
    assert {european.language, brazilian.language} == {"pt-BR", "pt-PT"}
    assert european.confidence == brazilian.confidence > english.confidence


def test_a_text_in_no_language_that_is_known_is_in_the_one_that_is_not() -> None:
    ranked = Detector(["tlh", "qya"]).rank("nuqneH")
    assert [(guess.language, guess.confidence) for guess in ranked] == [("tlh", 0.0), ("qya", 0.0)]
    detector = Detector(["en", "yi"])
    assert "yi" not in detector._all.labels
    assert [guess.language for guess in detector.rank("דער הונט שלאָפֿט אין דער גאַס")] == ["yi", "en"]
    for text in ("The dog sleeps in the street.", "The cat sat.", "Hello", "Yes"):
        english, yiddish = detector.rank(text)
        assert (english.language, english.confidence, yiddish.confidence) == ("en", 100, 0)


@pytest.mark.parametrize("code", ["nb", "no", "nb-NO"])
def test_a_language_known_by_another_code_is_told(code: str) -> None:
    ski = "Jeg liker å gå på ski i fjellet om vinteren, og det gjør mine venner også."
    first, second = Detector(["en", code]).rank(ski)
    assert (first.language, second.language) == (code, "en")
    assert first.confidence > 90
