"""Language pairs, and which language a text is in."""

import pytest

from regard.errors import RecipeError
from regard.serve.languages import Detector, Pair, name


def test_a_pair_is_two_codes() -> None:
    assert Pair.read("en-de") == Pair("en", "de")
    assert Pair.read("pt-BR:en") == Pair("pt-BR", "en")
    assert str(Pair("en", "de")) == "en-de"


@pytest.mark.parametrize(
    "text", ["", "en", "en-", "-de", "en-en", "english-german", "e1-de", "en de"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="no language pair"):
        Pair.read(text)


def test_languages_have_names_and_others_go_by_their_code() -> None:
    assert (name("de"), name("tlh")) == ("German", "tlh")


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


def test_a_language_unknown_to_the_detector_is_the_only_guess_if_there_is_no_other() -> None:
    (guess,) = Detector(["tlh"]).rank("nuqneH")
    assert (guess.language, guess.confidence) == ("tlh", 0.0)
