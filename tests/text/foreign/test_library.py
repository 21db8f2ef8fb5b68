"""LibraryTokenizer against the tokenizers library itself, on tokenizers that are trained here."""

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from regard.errors import DataError, ModelError
from regard.text.foreign import LibraryTokenizer
from regard.text.foreign.library import LONGEST_AT_ONCE
from regard.text.opening import open_tokenizer
from regard.text.tokenizer import EOS

LINES = [
    "the cat that the dog saw sat on the mat, and the dog sat on the cat's mat.",
    "die Katze, die der Hund sah, saß auf der Matte; der Hund saß daneben.",
] * 4
ODD = [
    "", " ", "  two  spaces ", "\t", "the\nmat", "\x00", "\u200d", "👩‍👩‍👧 cat 🐈", "e\u0301té é",
    "고양이", "<unk> <pad> </s> <s>", "##at", "Ġcat ▁cat", "the cat " * 200, "a" * 1500,
]  # fmt: skip
TEXT = st.text() | st.lists(st.sampled_from([*ODD, "cat", "Hund", " "])).map("".join)
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]
QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


def _bytes() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(LINES, trainer)
    return library


def _unigram() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.Unigram())
    library.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=80, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    library.train_from_iterator(LINES, trainer)
    return library


def _wordpieces() -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False)
    library.train_from_iterator(LINES, trainer)
    library.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", None, [("<s>", 1), ("</s>", 2)]
    )
    library.enable_truncation(7)
    library.enable_padding(length=9)
    return library


KINDS = {"bytes": _bytes, "unigram": _unigram, "word pieces": _wordpieces}


@pytest.fixture(scope="module", params=KINDS)
def both(request: Any, tmp_path_factory: Any) -> tuple[LibraryTokenizer, tokenizers.Tokenizer]:
    theirs = KINDS[request.param]()
    path = tmp_path_factory.mktemp("library") / "tokenizer.json"
    theirs.save(str(path))
    theirs.encode_special_tokens = True
    theirs.no_truncation()
    theirs.no_padding()
    return LibraryTokenizer.read(path), theirs


@QUICK
@given(TEXT)
def test_encodes_as_the_library(
    both: tuple[LibraryTokenizer, tokenizers.Tokenizer], line: str
) -> None:
    ours, theirs = both
    line = line[:LONGEST_AT_ONCE]
    [ids] = ours.encode([line])
    assert ours.order.foreign_ids[:4] == [3, 1, 2, 0]
    expected = theirs.encode(line, add_special_tokens=False).ids
    expected = [i for i in expected if i not in (1, 2, 3)]  # unigram models take them for text
    assert [ours.order.foreign_ids[i] for i in ids] == expected
    assert all(i > EOS for i in ids)
    assert ours.encode([line], "target") == [ids]
    assert [a.tolist() for a in ours.encode_arrays([line])] == [ids]


@QUICK
@given(st.data())
def test_decodes_as_the_library(
    both: tuple[LibraryTokenizer, tokenizers.Tokenizer], data: Any
) -> None:
    ours, theirs = both
    ids = data.draw(st.lists(st.integers(EOS, ours.size - 1), max_size=30))
    expected = theirs.decode([ours.order.foreign_ids[i] for i in ids], skip_special_tokens=True)
    assert ours.decode([ids]) == ours.decode([ids], "source") == [expected]


def test_names_of_pieces(both: tuple[LibraryTokenizer, tokenizers.Tokenizer]) -> None:
    ours, _ = both
    line = "the cat sat on the mat"
    [ids] = ours.encode([line])
    names = ours.names([1, *ids, 2], "source")
    assert (names[0], names[-1]) == ("<s>", "</s>")
    assert "".join(names[1:-1]) == " " + line


def test_long_lines_are_cut_before_a_space(
    both: tuple[LibraryTokenizer, tokenizers.Tokenizer],
) -> None:
    ours, _ = both
    line = " ".join(["the cat sat on the mat"] * (LONGEST_AT_ONCE // 10))
    [text] = ours.decode(ours.encode([line]))
    assert text.strip() == line


def test_is_saved_with_its_file_and_opened(
    both: tuple[LibraryTokenizer, tokenizers.Tokenizer], tmp_path: Path
) -> None:
    ours, _ = both
    ours.save(tmp_path / "tokenizer.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["library.json", "tokenizer.json"]
    for other in (open_tokenizer(tmp_path), pickle.loads(pickle.dumps(ours))):
        assert other.fingerprint == ours.fingerprint
        assert other.encode(ODD) == ours.encode(ODD)


def test_one_for_each_side(tmp_path: Path) -> None:
    paths = [tmp_path / "one.json", tmp_path / "other.json"]
    for path, make in zip(paths, KINDS.values(), strict=False):
        make().save(str(path))
    ours = LibraryTokenizer.read(*paths, size=500)
    assert not ours.shared
    assert (ours.size, ours.source_size) == (500, 308)
    assert ours.encode(LINES) == LibraryTokenizer.read(paths[0]).encode(LINES)
    assert ours.encode(LINES, "target") == LibraryTokenizer.read(paths[1]).encode(LINES)
    assert ours.decode([[499]]) == [""]  # a row of the embedding without a piece
    with pytest.raises(DataError, match="lone surrogate"):
        ours.encode(["\ud800"])
    for sizes, path in (({"size": 30}, paths[1]), ({"source_size": 30}, paths[0])):
        with pytest.raises(ModelError, match="it is the tokenizer of another model") as refused:
            LibraryTokenizer.read(*paths, **sizes)
        assert str(refused.value).startswith(str(path))


def charsmap(*texts: bytes) -> str:
    """A table of SentencePiece without an index."""
    return base64.b64encode(b"\0\0\0\0" + b"\0".join(texts) + b"\0").decode()


def replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


DAMAGE: dict[str, tuple[dict[str, Any], str]] = {
    "an expression for ever": (
        {"normalizer": replace({"Regex": "(a+)+$"}, "")},
        r"its normalizer has the regular expression '\(a\+\)\+\$', which may run for ever",
    ),
    "one deep inside": (
        {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {
                        "type": "Split",
                        "pattern": {"Regex": "(x|x)*y"},
                        "behavior": "Isolated",
                        "invert": False,
                    }
                ],
            }
        },
        "its pre_tokenizer has the regular expression",
    ),
    "laughs": (
        {"normalizer": {"type": "Sequence", "normalizers": [replace({"String": "a"}, "aa")] * 40}},
        "may lengthen a text more than 10,000 times",
    ),
    "laughs in decoding": (
        {"decoder": {"type": "Sequence", "decoders": [replace({"Regex": ""}, "aa")] * 40}},
        "its decoder may lengthen a text",
    ),
    "a table of long texts": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap(b"a" * 20000)}},
        "may lengthen a text",
    ),
    "no model": ({"model": None}, "damaged, or not a tokenizer.json of the tokenizers library"),
    "another model": ({"model": {"type": "Magic"}}, "damaged, or not a tokenizer.json"),
    "no entries": (
        {"model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": []},
        "it has no entries",
    ),
    "a negative id": (
        {"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}},
        "damaged, or not a tokenizer.json",
    ),
    "a huge id": (
        {"model": {"type": "BPE", "vocab": {"a": 4000000000}, "merges": []}},
        "or more than 1,000,000",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_and_hostile_files_are_refused(name: str, tmp_path: Path) -> None:
    change, problem = DAMAGE[name]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(_bytes().to_str()) | change), "utf-8")
    with pytest.raises(ModelError, match=problem) as refused:
        LibraryTokenizer.read(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 10**5, pickle.dumps({})])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="damaged, or not"):
        LibraryTokenizer.read(path)


def test_no_end_of_sentence(tmp_path: Path) -> None:
    library = tokenizers.Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, "<unk>"))
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="the vocabulary has no end of sentence"):
        LibraryTokenizer.read(tmp_path / "tokenizer.json")
    ours = LibraryTokenizer.read(tmp_path / "tokenizer.json", specials=(-1, -1, 2), size=3)
    assert ours.encode(["a"]) == [[3]]
