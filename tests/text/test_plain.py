"""Source lines are rewritten for the characters that a vocabulary has."""

import unicodedata
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.plain import plainer
from regard.text.tokenizer import Tokenizer

ENGLISH = Tokenizer.learn(
    [*["the café's cat sat on the mat “on” it"] * 9, *["the cat\u00a0sat"] * 2], "bpe", 600
)
FRENCH = Tokenizer.learn(["Où\u00a0? Là\u00a0!"] * 9, "bpe", 4000)
KOREAN = Tokenizer.learn(["고양이가 매트 위에 앉았다."] * 9, "bpe", 600)
JAMO = Tokenizer.learn([unicodedata.normalize("NFD", "고양이가 매트 위에 앉았다.")] * 9, "bpe", 600)


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("  the  cat \t sat ", "the cat sat"),
        ("the\u2009cat\u202fsat\u3000on", "the cat sat on"),
        ("the ca\u00adt s\u200bat\ufeff", "the cat sat"),
        ("the cat’s “mat” — ‘mat’ …", "the cat's “mat” - 'mat' ..."),
        ("the ﬁrst ｃａｔ", "the first cat"),
        ("the cat 5′ 3″", "the cat 5' 3\""),
        ("cafe\u0301", "café"),
        ("the\u00a0cat", "the cat"),  # a blank of few lines
        ("the cat 😀 sat ❤\ufe0f on 👍🏽", "the cat sat on"),  # symbols that the text did not have
        ("the ñandú, 2½ cats", "the nandu, 2 1/2 cats"),
        ("the ł 고양이", "the ł 고양이"),  # nothing plainer is known
        (" \u2009\u200b", ""),
        ("", ""),
    ],
)
def test_what_the_vocabulary_lacks_is_written_plainly(line: str, plain: str) -> None:
    assert plainer(ENGLISH)(line) == plain


def test_what_only_targets_have_is_replaced_if_it_is_no_letter() -> None:
    assert plainer(ENGLISH)("the “café” on") == "the “café” on"
    assert plainer(ENGLISH, characters="“")("the “café” on") == 'the “café" on'
    german = Tokenizer.learn(["Ein „Käfig“ – für den Käfer"] * 9, "bpe", 600)
    assert plainer(german)("„Käfig“ –") == "„Käfig“ –"
    assert plainer(german, characters="")("„Käfig“ –") == '"Käfig" -'


def test_a_blank_that_is_usual_in_the_text_stays() -> None:
    assert plainer(FRENCH)("Là\u00a0? Où\u202f?") == "Là\u00a0? Où ?"


def test_letters_in_several_characters_become_what_the_text_had() -> None:
    composed = "고양이가 앉았다 ł"
    decomposed = unicodedata.normalize("NFD", composed)
    assert plainer(KOREAN)(decomposed) == composed
    assert plainer(JAMO)(decomposed) == decomposed


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_plain_line_stays_as_it_is(line: str) -> None:
    for tokenizer in (ENGLISH, KOREAN):
        plain = plainer(tokenizer)
        assert plain(plain(line)) == plain(line)
        assert len(tokenizer.encode([line])[0]) or not plain(line)


def test_a_foreign_tokenizer_has_rules_of_its_own() -> None:
    foreign: Any = SimpleNamespace()
    assert plainer(foreign)(" a\u00a0 b") == " a\u00a0 b"
