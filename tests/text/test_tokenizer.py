import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from regard.errors import DataError, ModelError, RecipeError
from regard.text.tokenizer import (
    BOS,
    BYTE_ALPHABET,
    CONTINUED,
    EOS,
    LONGEST_LEARNT,
    PAD,
    SPECIAL,
    Tokenizer,
)

VERSES = [
    "the cat that the dog saw sat on the mat, and the dog sat on the cat's mat.",
    "die Katze, die der Hund sah, saß auf der Matte; der Hund saß daneben.",
    "l'été où le chat qu'on aimait s'est assis, où l'on s'est tu",
    "고양이가 매트 위에 앉았다. 개도 매트 위에 앉았다.",
] * 7
KINDS = ("bpe", "wordpiece")
LEARNT = {kind: Tokenizer.learn(VERSES, kind, 709) for kind in KINDS}


def saved(tokenizer: Tokenizer) -> str:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / "tokenizer.json")
        return (Path(folder) / "tokenizer.json").read_text("utf-8")


SAVED = {kind: saved(tokenizer) for kind, tokenizer in LEARNT.items()}
both = pytest.mark.parametrize("kind", KINDS)

# Plain text() seldom draws the characters that break tokenizers.
TEXT = st.text() | st.lists(
    st.sampled_from(
        [
            *(" ", "  ", "\t", "\r", "\x00", "\x1c", "\x85", "\xa0", "\u2028", "\u200d", "\u3000"),
            *(
                "cat",
                "the",
                "s",
                "'",
                "'s",
                "é",
                "e\u0301",
                "👩\u200d👩\u200d👧",
                "고",
                "\ufeff",
                "\ufffd",
            ),
            *(
                *SPECIAL,
                CONTINUED,
                CONTINUED + "at",
                "##at",
                "Ġcat",
                "[UNK]",
                "a" * 101,
                "\U0010ffff",
            ),
        ]
    )
).map("".join)


@both
@given(text=TEXT)
@example(text="")
@example(text=" ")
@example(text=" a  b ")
@example(text="<s>the cat</s> <pad>")
def test_any_text_survives(kind: str, text: str) -> None:
    tokenizer = LEARNT[kind]
    (ids,) = tokenizer.encode([text])
    assert all(EOS < i < tokenizer.size for i in ids)
    assert tokenizer.decode([ids]) == [text]


@both
@given(lines=st.lists(TEXT, max_size=7))
def test_remembering_words_gives_what_the_saved_tokenizer_gives(
    kind: str, lines: list[str]
) -> None:
    library = tokenizers.Tokenizer.from_str(SAVED[kind])
    library.encode_special_tokens = True
    expected = [library.encode(line, add_special_tokens=False).ids for line in lines]
    assert LEARNT[kind].encode(lines) == expected


@both
def test_a_word_has_the_same_pieces_wherever_it_stands(kind: str) -> None:
    cat, the_cat = LEARNT[kind].encode(["cat", "the cat"])
    assert len(cat) == 1
    assert the_cat[-1:] == cat


@both
def test_a_vocabulary_begins_with_the_signs_and_has_every_byte(kind: str) -> None:
    tokenizer = LEARNT[kind]
    entries = json.loads(SAVED[kind])["model"]["vocab"]
    assert [entries[sign] for sign in SPECIAL] == [PAD, BOS, EOS] == [0, 1, 2]
    assert set(BYTE_ALPHABET) <= set(entries)
    assert sorted(entries.values()) == list(range(tokenizer.size))
    assert tokenizer.size < 709  # by then every word of the verses is one piece


@pytest.mark.parametrize(("kind", "vocabulary"), [("bpe", 331), ("wordpiece", 547)])
def test_a_vocabulary_has_the_size_that_is_asked_for(kind: str, vocabulary: int) -> None:
    assert Tokenizer.learn(VERSES, kind, vocabulary).size == vocabulary


@both
def test_text_without_recurring_pairs_gives_the_smallest_vocabulary(kind: str) -> None:
    smallest = {"bpe": 3 + 256, "wordpiece": 3 + 2 * 256}[kind]
    tokenizer = Tokenizer.learn(["xyz"], kind, 997)
    assert tokenizer.size == smallest
    assert tokenizer.decode(tokenizer.encode(["aé"])) == ["aé"]


def test_a_vocabulary_too_small_for_the_bytes_is_refused() -> None:
    with pytest.raises(RecipeError, match="give at least 515"):
        Tokenizer.learn(VERSES, "wordpiece", 514)


@both
def test_decoding_ignores_ids_without_text(kind: str) -> None:
    tokenizer = LEARNT[kind]
    (ids,) = tokenizer.encode(["the cat"])
    noisy = [BOS, *ids[:1], tokenizer.size, 10**9, PAD, -1, *ids[1:], EOS, PAD]
    assert tokenizer.decode([noisy, [], [PAD]]) == ["the cat", "", ""]


def test_bytes_that_are_not_utf_8_show_as_replacement_characters() -> None:
    tokenizer = LEARNT["bpe"]
    (ids,) = tokenizer.encode(["\U0010ffff"])
    assert "\ufffd" in tokenizer.decode([ids[:-1]])[0]


@both
@pytest.mark.parametrize("word", ["a", "é", "the", " ", "the ", "1", "."])
def test_a_word_of_100_000_characters_does_not_take_quadratic_time(kind: str, word: str) -> None:
    line = word * (100_000 // len(word))
    start = time.process_time()
    assert LEARNT[kind].decode(LEARNT[kind].encode([line])) == [line]
    assert time.process_time() - start < 5


@both
def test_the_same_text_gives_the_same_tokenizer_in_another_process(kind: str) -> None:
    program = (
        "import sys, json; from regard.text.tokenizer import Tokenizer;"
        f"print(Tokenizer.learn(json.load(sys.stdin), {kind!r}, 709).fingerprint)"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(VERSES),
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == LEARNT[kind].fingerprint


def test_another_text_gives_another_fingerprint() -> None:
    assert Tokenizer.learn(VERSES[1:2] * 7, "bpe", 307).fingerprint != LEARNT["bpe"].fingerprint


@both
def test_saving_and_loading_changes_nothing(kind: str, tmp_path: Path) -> None:
    LEARNT[kind].save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.fingerprint == LEARNT[kind].fingerprint
    lines = [*VERSES[:4], "</s> typed", ""]
    assert loaded.encode(lines) == LEARNT[kind].encode(lines)
    assert loaded.decode(loaded.encode(lines)) == lines
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]


def test_what_is_not_our_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelError, match="cannot read the tokenizer: No such file"):
        Tokenizer.load(path)
    with pytest.raises(ModelError, match="cannot read the tokenizer: Is a directory"):
        Tokenizer.load(tmp_path)
    LEARNT["bpe"].save(path)
    whole = path.read_bytes()
    for damaged in (b"", b"{}", b"\xff\xfe", whole[:-1], whole[: len(whole) // 2], b"[" * 10**5):
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match="damaged"):
            Tokenizer.load(path)
    path.write_bytes(whole.replace(b'"</s>"', b'"<eos>"'))
    with pytest.raises(ModelError, match="not made by regard"):
        Tokenizer.load(path)


@both
def test_lone_surrogates_are_refused_with_their_place(kind: str) -> None:
    with pytest.raises(DataError, match=r"line 2 has a lone surrogate \(U\+D83D\) at character 3"):
        LEARNT[kind].encode(["fine", "no\ud83d", "fine"])
    with pytest.raises(DataError, match="line 3 has a lone surrogate"):
        Tokenizer.learn(["fine", "fine", "\udc00"], kind, 709)


@pytest.mark.data
@both
def test_real_captions_survive_in_few_pieces(kind: str, regard_data: Path) -> None:
    lines = [
        line
        for language in ("en", "de")
        for line in (regard_data / f"multi30k/val.{language}").read_text("utf-8").split("\n")
    ]
    tokenizer = Tokenizer.learn(lines, kind, 2003)
    assert tokenizer.size == 2003
    ids = tokenizer.encode(lines)
    assert tokenizer.decode(ids) == lines
    words = sum(len(line.split()) for line in lines)
    assert words < sum(map(len, ids)) < 2 * words


SYMBOLS = ["(NP", ")NP", "NN", ".", "△", "the", " dog", "</s>"]


@both
@given(text=TEXT)
@example(text="△(NP △NN △. △the △△")
def test_symbols_have_ids_that_no_text_is_encoded_as(kind: str, text: str) -> None:
    tokenizer = LEARNT[kind].with_symbols(SYMBOLS)
    size = LEARNT[kind].size
    assert tokenizer.symbols == {name: size + i for i, name in enumerate(SYMBOLS)}
    assert tokenizer.size == size + len(SYMBOLS)
    assert tokenizer.encode([text]) == LEARNT[kind].encode([text])


@both
def test_symbols_are_saved_with_the_pieces(kind: str, tmp_path: Path) -> None:
    tokenizer = LEARNT[kind].with_symbols(SYMBOLS)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.symbols == tokenizer.symbols
    assert loaded.fingerprint == tokenizer.fingerprint
    assert LEARNT[kind].symbols == {}


def test_of_several_blanks_no_piece_is_learned() -> None:
    lines = [f"a{' ' * (number % 7)}b{' ' * (number % 5)}c" for number in range(600)]
    tokenizer = Tokenizer.learn(lines, "bpe", 320)
    assert not any("  " in tokenizer.names([piece], "source")[0] for piece in range(tokenizer.size))
    assert tokenizer.decode(tokenizer.encode(lines)) == lines


@pytest.mark.parametrize("kind", KINDS)
def test_from_a_line_that_is_no_sentence_nothing_is_learned(kind: str) -> None:
    long = "hippopotamus " * (LONGEST_LEARNT // 13)  # as long as may be, or nearly so
    assert saved(Tokenizer.learn([*VERSES, long], kind, 600)) != saved(
        Tokenizer.learn([*VERSES, long + "and more of it"], kind, 600)
    )
    more = [*VERSES, long + "and more of it"]
    assert saved(Tokenizer.learn(more, kind, 600)) == saved(Tokenizer.learn(VERSES, kind, 600))


@pytest.mark.parametrize(("kind", "size"), [("bpe", 300), ("wordpiece", 560)])
def test_symbols_are_a_part_of_the_vocabulary_that_is_asked_for(kind: str, size: int) -> None:
    assert Tokenizer.learn(VERSES, kind, size, ["(A", ")A", "x"]).size == size
