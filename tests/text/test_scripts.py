"""Scripts of text: how BLEU divides their words, and whether blanks stand between sentences."""

import pytest

from regard.text.scripts import meet_without_blank, suited_tokenizer


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        ("", "13a"),
        ("1234 !?", "13a"),
        ("Ein Mann liest.", "13a"),
        ("Мужчина читает.", "13a"),
        ("나는 책을 읽었다.", "char"),
        ("\u1102\u1161\u1102\u1173\u11ab", "char"),  # letters that are not composed
        ("그는 Samsung 에서 오래 일했다.", "char"),
        ("Samsung Electronics (삼성) sold phones.", "13a"),
        ("我在北京读书。", "zh"),
        ("彼は本を読んだ。", "char"),
        ("ผมอ่านหนังสือ", "char"),
        ("彼は안녕と言った。本を読んだ。", "char"),
        ("我爱你。", "zh"),
        ("중국말 謝謝你, 태국말 ขอบ", "char"),  # Korean letters are the most
    ],
)
def test_bleu_divides_words_as_the_script_needs(text: str, tokenizer: str) -> None:
    assert suited_tokenizer([text, text]) == tokenizer


@pytest.mark.parametrize(
    ("left", "right", "unspaced"),
    [
        ("他说안녕。", "他走了。", True),
        ("He lives in 東京.", "She left.", False),
        ("我读书。", "他睡觉。", True),
        ("本を読んだ。", "猫が来た。", True),
        ("I read.", "He slept.", False),
        ("그는 책을 읽었다.", "《춘향전》은 재미있다.", False),
        ("「네。」", "라고 했다.", False),
    ],
)
def test_only_chinese_and_japanese_sentences_meet_without_a_blank(
    left: str, right: str, unspaced: bool
) -> None:
    assert meet_without_blank(left, right) == unspaced
