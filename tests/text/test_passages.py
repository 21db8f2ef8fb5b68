"""Splitting texts: what is translated, and what stays."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.text.markup import read_references
from regard.text.passages import read_html, read_passage, read_text


def shouted(text: str, *, is_html: bool = False) -> str:
    passage = (read_html if is_html else read_text)(text, "en")
    return passage.joined([sentence.upper() for sentence in passage.sentences])


@settings(deadline=None)
@given(st.text() | st.text(alphabet="aB .!?\n\r\t-1)•\"'("))
def test_a_text_whose_sentences_stay_stays_as_it_is(text: str) -> None:
    passage = read_text(text, "en")
    assert passage.joined(passage.sentences) == text
    assert all(sentence.strip() == sentence != "" for sentence in passage.sentences)


def test_sentences_are_told_apart_and_line_breaks_lists_and_blank_lines_come_back() -> None:
    text = "Dr. Smith sleeps. Does he?\n\n  - one. Two\n\t2. three\r\n> quoted\n\n\n* 12\n"
    assert read_text(text, "en").sentences == (
        "Dr. Smith sleeps.", "Does he?", "one.", "Two", "three", "quoted",
    )  # fmt: skip
    assert shouted(text) == (
        "DR. SMITH SLEEPS. DOES HE?\n\n  - ONE. TWO\n\t2. THREE\r\n> QUOTED\n\n\n* 12\n"
    )


def test_sentences_end_by_the_rules_of_the_language() -> None:
    german = "Das ist z. B. gut. Am 3. Oktober ist Feiertag."
    assert read_text(german, "de").sentences == (
        "Das ist z. B. gut.", "Am 3. Oktober ist Feiertag.",
    )  # fmt: skip
    assert read_text("안녕하세요. 반갑습니다!", "ko").sentences == ("안녕하세요.", "반갑습니다!")


JAPANESE = "委員会は月曜日に、川に架かる新しい橋を来年建設することを決定した。"


@pytest.mark.parametrize(
    ("text", "language", "sentence"),
    [
        ("A long sentence ends here. " * 260, "en", "A long sentence ends here."),
        ("ah " + JAPANESE * 200, "ja", JAPANESE),
    ],
)
def test_no_sentence_of_a_very_long_line_is_cut(text: str, language: str, sentence: str) -> None:
    passage = read_text(text, language)
    assert {one.removeprefix("ah ") for one in passage.sentences} == {sentence}
    assert passage.joined(passage.sentences) == text


@pytest.mark.parametrize("blank", ["\xa0", "\u202f", "\u2009", "\u3000", "\x85", "\u1680"])
def test_a_capital_and_an_unusual_blank_are_no_obstacle(blank: str) -> None:
    text = f"Take vitamin C{blank}. It helps."
    passage = read_text(text, "en")
    assert passage.joined(passage.sentences) == text
    assert passage.sentences[-1] == "It helps."


@pytest.mark.parametrize(
    "sentence", ["word " * 800, "clause of some words, " * 400, "x" + "😀" * 9999, "é" * 1001]
)
def test_a_sentence_without_end_comes_in_parts(sentence: str) -> None:
    passage = read_text(sentence, "en")
    assert passage.joined(passage.sentences) == sentence
    assert max(map(len, passage.sentences)) <= 1000
    assert len(passage.sentences) <= len(sentence) / 400 + 1
    assert all(one == one.strip() for one in passage.sentences)
    if "," in sentence:
        assert all(one.endswith(",") for one in passage.sentences)


def test_only_a_short_word_is_a_code() -> None:
    def prefix(line: str) -> str:  # as a Marian tokenizer finds it
        return line[: line.find("<<") + 2] if line.startswith(">>") and "<<" in line else ""

    tokenizer: Any = SimpleNamespace(prefix=prefix)
    assert read_passage(">>de<< Go. Now.", "en", tokenizer).sentences == (">>de<<Go.", ">>de<<Now.")
    for text in (">> It is on Monday.\nI agree. See <<Annex 1>>.", ">>" + "X" * 50 + "<<Hi! Ho!"):
        passage = read_passage(text, "en", tokenizer)
        assert passage.joined(passage.sentences) == text
        assert sum(map(len, passage.sentences)) <= len(text)


def test_chinese_and_japanese_sentences_get_blanks_between_them_in_other_languages() -> None:
    text, english = "犬が寝ている。猫が来た。元気?", ["A dog.", "A cat.", "Well?"]
    for passage in (read_text(text, "ja"), read_html(text, "ja")):
        assert passage.joined(english) == "A dog. A cat. Well?"
        assert passage.joined(["狗。", "猫。", "好?"]) == "狗。猫。好?"
    assert shouted("see x.org/a?B=1") == "SEE X.ORG/A?B=1"


@pytest.mark.parametrize("blank", [" ", "\u3000"])
def test_a_word_before_very_many_blanks_is_a_sentence(blank: str) -> None:
    text = f"a{blank * 3000}b.{blank * 2000}"
    assert read_text(text, "en").sentences == read_html(text, "en").sentences == ("a", "b.")
    assert shouted(text) == text.upper()


def test_korean_quotations_belong_to_the_sentence_around_them() -> None:
    text = "그는 “왜?”라고 물었다. 나는 '응.'이라고 했다. “왜?” 나는 갔다."
    assert read_text(text, "ko").sentences == (
        "그는 “왜?”라고 물었다.", "나는 '응.'이라고 했다.", "“왜?”", "나는 갔다.",
    )  # fmt: skip
    for text in ("“왜?” 라고 물었다.", "“왜?” 하고 물었다."):
        assert read_text(text, "ko").sentences == (text,)
    assert read_text("“왜?” 하고 싶은 말이 있다.", "ko").sentences[0] == "“왜?”"


@pytest.mark.parametrize(
    "rest",
    [
        "と言った。",
        "と、彼は言った。",
        "と彼は言った。",
        "といった。",
        "とジョンは言った。",
        "とうなずいた。",
        "\u3000と言った。",
        "って本当？",
        "とのことです。",
        "などと話した。",
    ],
)
def test_japanese_quotations_belong_to_the_sentence_around_them(rest: str) -> None:
    for quoted in ("「行くよ。」", "『行くよ。』", "「本当？」", "彼は「行くよ。」"):
        sentence = quoted + rest
        assert read_text(sentence + "猫が来た。", "ja").sentences == (sentence, "猫が来た。")


@pytest.mark.parametrize("after", ["とても嬉しい。", "ところで、猫が来た。", "彼は言った。"])
def test_a_sentence_after_a_japanese_quotation_is_a_sentence_of_its_own(after: str) -> None:
    assert read_text("「行くよ。」" + after, "ja").sentences == ("「行くよ。」", after)


def test_sentences_that_quote_korean_are_not_korean() -> None:
    english = ["I like Korean.", "I like Japanese."]
    for text, language in (
        ("我喜欢韩语（한국어）。我也喜欢日语。", "zh"),
        ("「안녕」と言った。猫が来た。", "ja"),
    ):
        passage = read_text(text, language)
        assert passage.joined(english) == "I like Korean. I like Japanese."
        assert passage.joined(passage.sentences) == text


def test_korean_sentences_without_a_blank_get_one_in_another_language() -> None:
    text = "나는 책을 읽었다.그는 잤다."
    for passage in (read_text(text, "ko"), read_html(text, "ko")):
        assert passage.joined(["I read.", "He slept."]) == "I read. He slept."
        assert passage.joined(["我读书。", "他睡觉。"]) == "我读书。他睡觉。"
        assert passage.joined(passage.sentences) == text


def test_what_has_no_letters_is_not_translated() -> None:
    assert read_text("😀 12,50 €\n---\n", "en").sentences == ()


def test_a_translation_of_several_lines_comes_on_one() -> None:
    assert read_text("a.\nb.", "en").joined(["x\ny", "z"]) == "x y\nz"


def test_html_keeps_its_tags_to_the_character() -> None:
    markup = '<p class=a  ID="B">The <B>dog</B >\n sleeps &amp; eats.<br/> Yes<!-- no --></P>'
    expected = '<p class=a  ID="B">THE <B>DOG</B >\n SLEEPS &amp; EATS.<br/> YES<!-- no --></P>'
    assert shouted(markup, is_html=True) == expected
    assert shouted("a<!-->b<!--->c", is_html=True) == "A<!-->B<!--->C"
    assert shouted("a<!--!>b-->c", is_html=True) == "A<!--!>b-->C"


@pytest.mark.parametrize(
    "kept",
    [
        "<script>if (a < b) alert('hi there')</script>",
        "<style>p { color: red }</style>",
        "<pre>as it\n is</pre>",
        "<code>print x</code>",
        "<span translate=no>not <span>this</span> here</span>",
        "<div class='x notranslate'>nor this</div>",
        "<p translate='NO'>nor that</p>",
        "<![if\n!vml]><![endif]><![x]><![\n1]><code>nor this</code>",
        "<!doctype html>",
        "<?php echo one ?>",
        "<script>never closed",
        "<!-- never closed",
        "<!-- nor <b>this",
        "<!-- x --!>",
    ],
)
def test_what_no_reader_reads_stays_as_it_is(kept: str) -> None:
    assert shouted(f"<p>yes</p>{kept}", is_html=True) == f"<p>YES</p>{kept}"


@pytest.mark.parametrize(
    "markup",
    [
        "<p translate=no>one<p>two</p>",
        "<p translate=no>one<h2>two</h2>",
        "<p translate=no>one<hr/>two",
        "<p translate=no>one <b>one</b> one</p>two",
        "<div><p translate=no>one</div>two",
        "<ul><li class=notranslate>one<li>two</ul>",
        "<ul><li translate=no>one</ul>two",
        "<li translate=no>one<ul><li>one<li>one</ul>one<li>two",
        "<dl><dt translate=no>one<dd>two</dl>",
        "<tr><td translate=no>one<th>two",
        "<tr><td translate=no>one<tr><td>two",
        "<tr translate=no><td>one<td>one<tr><td>two",
        "<table><td translate=no>one</table>two",
        "<td translate=no>one<table><td>one</table>one<td>two",
        "<option translate=no>one<option>two",
        "<optgroup translate=no><option>one<option>one<optgroup><option>two",
        "<ruby>two<rt translate=no>one<rp>two</ruby>two",
        "<div translate=no>one<p>one<p>one</div>two",
        "<track translate=no><param translate=no>two",
    ],
)
def test_what_is_kept_ends_though_its_end_tag_is_left_out(markup: str) -> None:
    assert shouted(markup, is_html=True) == markup.replace("two", "TWO")


def test_a_number_of_a_character_may_begin_with_zeros() -> None:
    assert read_html(f"&#{'0' * 5000}65; &#0066;", "en").sentences == ("A B",)


def test_a_translation_cannot_add_markup() -> None:
    passage = read_html("<p>hello &lt;b&gt; there</p>", "en")
    assert passage.sentences == ("hello <b> there",)
    assert passage.joined(["<script>x</script>"]) == "<p>&lt;script&gt;x&lt;/script&gt;</p>"


def test_a_sentence_that_html_breaks_over_lines_is_one() -> None:
    assert read_html("<p>The dog\n   sleeps.</p>", "en").sentences == ("The dog sleeps.",)


markup = st.lists(
    st.sampled_from(
        ["<", ">", "</", "<p>", "</p>", "<b a='", '"', "'", "&", "&amp;", "&#60;", "<!--", "-->",
         "&#" + "1" * 5000, ";", "--!>",
         "<script>", "</script>", "<![CDATA[", "]]>", "<![x", "<![\n", "<?", "dog. Cat", " ",
         "\n", "translate=no"]
    )
).map("".join)  # fmt: skip


@settings(deadline=None)
@given(st.text() | markup)
def test_html_of_any_kind_is_read_and_its_tags_stay(text: str) -> None:
    passage = read_html(text, "en")
    back = passage.joined(passage.sentences)
    plain = " ".join(read_references(text).split())
    assert " ".join(read_references(back).split()) == plain
    assert back.count("<") <= text.count("<")


@pytest.mark.parametrize(
    "piece",
    ["<a ", "<a b='", "<!--", "<!--x>", "<!-- -- >", "<", "&", "</", "<![CDATA[", "<![x",
     "<a b=''>'"],
)  # fmt: skip
@pytest.mark.timeout(20)
def test_crafted_markup_takes_no_time(piece: str) -> None:
    read_html(piece * 30_000, "en")
