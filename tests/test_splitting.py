"""Sentences that are too long, and how they are split and joined again."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import DataError, ModelError
from regard.text.scripts import join_sentences
from regard.text.tokenizer import EOS
from run.copying import RECIPE
from untrained import BRIEF, LINES, TOKENIZER, Heard, translator


def test_an_over_long_sentence_is_refused_by_name() -> None:
    pieces = len(TOKENIZER.encode([LINES[0]])[0])
    translator(longest=pieces + 1).translate(LINES[:1])  # with </s> it just fits
    lines = ["1", "", LINES[0]]
    with pytest.raises(DataError, match=rf"^sentence:3: {pieces + 1} pieces; .* at most {pieces}:"):
        translator(longest=pieces).translate(lines)
    stream = translator(longest=pieces).stream(lines, where="in.txt", window=2)
    assert len(next(stream)) == len(next(stream)) == 1  # those before the long one are translated
    with pytest.raises(DataError, match=r"^in\.txt:3: .*leave out --long refuse"):
        next(stream)
    with pytest.raises(DataError, match=r"^sentence:7: "):
        list(translator(longest=pieces).stream(lines, numbers=[1, 5, 7]))


def test_a_sentence_that_fits_is_not_split() -> None:
    assert translator().translate(LINES, split=True) == translator().translate(LINES)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("1 2 3; 4 5 6, 7 8 9 0", ["1 2 3; 4 5 6,", "7 8 9 0"]),
        ("1 2 3 4 5 6 7 8 9 0", ["1 2 3 4 5", "6 7 8 9 0"]),
        ("  1 2 3 4. 5 6 7 8 ", ["1 2 3 4.", "5 6 7 8"]),
        ("abcdefghij", ["abcde", "fghij"]),
        ("你好世界。今天很好！", ["你好世界。", "今天很好！"]),
        ("他说：「好！」我们去公园吧。", ["他说：「好！」", "我们去公园吧。"]),
    ],
)
def test_it_is_split_where_a_clause_ends_or_a_word_or_anywhere(line: str, parts: list[str]) -> None:
    longest = max(len(ids) for ids in TOKENIZER.encode(parts)) + 1
    whole, apart = translator(longest=longest), translator(longest=longest)
    whole.plain = apart.plain = str  # the vocabulary has no Chinese, and would change its marks
    [found] = whole.stream([line], n_best=2, split=True)
    each = list(apart.stream(parts, n_best=2))
    assert isinstance(whole.model, Heard)
    assert sorted(whole.model.sources) == sorted([*ids, EOS] for ids in TOKENIZER.encode(parts))
    for translation, (first, second) in zip(found, zip(*each, strict=True), strict=True):
        assert translation.text == join_sentences([first.text, second.text])
        assert translation.score == pytest.approx(first.score + second.score)


def test_a_single_text_is_no_list_of_sentences() -> None:
    with pytest.raises(TypeError, match=r"give \[text\]"):
        translator().translate("A dog.")


def test_what_is_no_text_is_named() -> None:
    nothing: Any = None
    with pytest.raises(TypeError, match="sentence:2: expected a str, not NoneType"):
        translator().translate(["A dog.", nothing])


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (["Good morning.", "All is well."], "Good morning. All is well."),
        (["안녕하세요.", "반갑습니다."], "안녕하세요. 반갑습니다."),
        (["你好世界。", "今天很好！", "我"], "你好世界。今天很好！我"),
        (["他说：“你好！”", "“再见。”"], "他说：“你好！”“再见。”"),
        (["He said “你好。”", "Then he left."], "He said “你好。” Then he left."),
        (["He wrote “好”", "“Good.”", "Then"], "He wrote “好” “Good.” Then"),
        (["これは", "ペンです。"], "これはペンです。"),
        (["", "a", "", "b"], "a b"),
        ([], ""),
    ],
)
def test_parts_are_joined_as_their_script_has_it(parts: list[str], whole: str) -> None:
    assert join_sentences(parts) == whole


@settings(deadline=None, max_examples=30)
@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(min_value=8, max_value=31))
def test_no_part_is_too_long_and_nothing_but_space_is_lost(line: str, longest: int) -> None:
    some = translator(BRIEF.but(max_extra=1, beam=1), longest)
    some.plain = str  # nothing is replaced
    some.translate([line], split=True)
    assert isinstance(some.model, Heard)
    assert all(len(ids) <= longest for ids in some.model.sources)
    said = "".join(TOKENIZER.decode(some.model.sources))
    assert sorted("".join(said.split())) == sorted("".join(line.split()))


def test_longer_sentences_are_translated_whole_on_demand() -> None:
    line = " ".join(LINES[:3])
    pieces = len(TOKENIZER.encode([line])[0])
    short, whole = translator(longest=pieces // 2), translator(longest=pieces + 1)
    with pytest.raises(DataError, match=f"{pieces + 1} pieces; this model reads at most"):
        short.translate([line])
    short.accept_longer()
    assert short.translate([line]) == whole.translate([line])
    with pytest.raises(DataError, match="reads at most 2048"):
        short.translate(["1 " * 3000])


def test_learned_positions_end_with_the_table() -> None:
    learned = translator(RECIPE.but(positions="learned", max_positions=300, max_extra=5))
    with pytest.raises(ModelError, match=r"learned 300 positions .* model\.positions = sinusoidal"):
        learned.accept_longer()
