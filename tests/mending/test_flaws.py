"""Flaws of translations, detected from the text alone."""

import pytest

from regard.mending.flaws import flaws


def found(
    source: str, output: str, pieces: tuple[int, int] = (5, 5), limit: int | None = 50
) -> list[str]:
    return list(
        flaws(source, output, source_pieces=pieces[0], output_pieces=pieces[1], limit=limit)
    )


@pytest.mark.parametrize(
    "output",
    [
        "Ich esse Salat Salat Salat.".replace("Salat.", "salat ."),
        "der Hund und der Hund und der Hund und mehr",
        "sehr sehr sehr gut",
        "the big old red the big old red the big old red",
        "안녕하안녕하안녕하",
        "lalalalala",
        "Ein INININININ.",
        "Ein ATTTTTTTTTTA.",
        "개\u3000개\u3000개",
        "我们 研究研究研究",
        "他用 Python 写程序写程序写程序 3",
    ],
)
def test_the_same_words_three_times_in_a_row_are_a_repetition(output: str) -> None:
    assert found("I eat salad.", output) == ["repetition"]


@pytest.mark.parametrize(
    "output",
    [
        "Ich esse Salat, Salat und Salat.",
        "der Hund und der Hund und die Katze",
        "- - - 3 3 3",
        "Schifffahrt",
        "zzz",
        "他用 Python 笑哈哈哈",
        "ha hahaha",
        "",
        "Der Mann, der der Frau half",
    ],
)
def test_what_people_write_is_no_repetition(output: str) -> None:
    assert found("I eat salad.", output) == []


def test_what_the_source_repeats_may_be_repeated() -> None:
    assert found("very very very good", "sehr sehr sehr gut") == []


def test_the_source_given_back_is_an_echo_unless_it_is_only_a_name() -> None:
    assert found("The dog sleeps.", "The  dog sleeps.") == ["echo"]
    assert found("Angela Merkel 2005", "Angela Merkel 2005") == []
    assert found("The dog sleeps.", "Der Hund schläft.") == []


@pytest.mark.parametrize(
    ("text", "flaws"),
    [
        ("China.", []),
        ("안녕하세요.", []),
        ("北京。", []),
        ("China。", []),
        ("狗在睡觉。", ["echo"]),
        ("これはペンです", ["echo"]),
        ("我 用 Python", ["echo"]),
        ("หมานอนหลับ", ["echo"]),
        ("ཁྱི་གཉིད་སོང་།", ["echo"]),
        ("𠀀𠀁𠀂𠀃", ["echo"]),
    ],
)
def test_characters_are_words_only_in_scripts_without_spaces(text: str, flaws: list[str]) -> None:
    assert found(text, text) == flaws


def test_far_too_few_pieces_are_a_truncation_and_so_is_the_longest_output() -> None:
    assert found("a long sentence", "kurz", (10, 3)) == ["truncation"]
    assert found("a long sentence", "kurz genug", (10, 4)) == []
    assert found("a third is enough", "ein Drittel genügt", (12, 4)) == []
    assert found("short", "s", (9, 1)) == []
    assert found("short", "ohne Ende", (9, 50)) == ["truncation"]
    assert found("in parts", "ohne Ende", (49, 50), limit=None) == []
