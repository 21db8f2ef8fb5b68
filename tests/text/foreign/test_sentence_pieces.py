"""SentencePieceTokenizer against MarianTokenizer of transformers, on models trained here."""

import io
import json
import pickle
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.arithmetic.choose import for_inference
from regard.data.rows import Rows
from regard.decoder_state import DecoderState
from regard.errors import DataError, ModelError
from regard.recipe import Recipe
from regard.text.foreign import SentencePieceTokenizer
from regard.text.foreign.sentence_pieces import SentencePieceSettings
from regard.text.opening import open_tokenizer
from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import EOS
from regard.transformer import Transformer
from regard.translation import Translator

sentencepiece = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

ENGLISH = (
    "the cat that the dog saw sat on the mat, and the dog sat on the cat's mat.",
    "I do not know what you mean: it is 12,345 things at once!",
    "she said “hello”, and then — nothing at all.",
) * 5
GERMAN = (
    "die Katze, die der Hund sah, saß auf der Matte; der Hund saß daneben.",
    "ich weiß nicht, was du meinst: es sind 12.345 Dinge auf einmal!",
    "sie sagte „hallo“, und dann – gar nichts.",
) * 5
ODD = [
    "", " ", "  two  spaces ", "\t", "the\nmat", "\x00", "\u200d", "👩‍👩‍👧 cat 🐈", "e\u0301té é",
    "고양이", "▁cat ▁ ", "<unk> <pad> </s> <s>", ">>de<< the cat", ">>xx<<cat", ">>de", ">><<",
    "<<>>de<<",
    "ﬁne ① ａｂｃ", "\u3000the\u00a0cat", "a" * 3000, "the cat " * 500, "do n't , you 's . ? !",
]  # fmt: skip
TEXT = st.text() | st.lists(st.sampled_from([*ODD, "cat", "Hund", " "])).map("".join)
KINDS = ["unigram", "bpe"]


@cache
def trained(lines: tuple[str, ...], kind: str, size: int, **options: Any) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(len(processor)) if not processor.is_control(i)]


def vocabulary(*models: bytes) -> dict[str, int]:
    """As OPUS-MT's: </s> first, <unk>, pieces of both sides, language codes, <pad> last."""
    every = [p for model in models for p in pieces(model) if p != "<unk>"]
    names = dict.fromkeys(["</s>", "<unk>", *every, ">>de<<", ">>fr<<", "<pad>"])
    return {piece: i for i, piece in enumerate(names)}


def marian(folder: Path, kind: str, *, apart: bool = False, **config: Any) -> Path:
    """A directory of MarianTokenizer."""
    source, target = trained(ENGLISH, kind, 90), trained(GERMAN, kind, 110)
    (folder / "source.spm").write_bytes(source)
    (folder / "target.spm").write_bytes(target)
    shared = vocabulary(source) if apart else vocabulary(source, target)
    (folder / "vocab.json").write_text(json.dumps(shared), encoding="utf-8")
    if apart:
        config["separate_vocabs"] = True
        (folder / "target_vocab.json").write_text(json.dumps(vocabulary(target)), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=[(k, a) for k in KINDS for a in (False, True)], ids=str)
def both(request: Any, tmp_path_factory: Any) -> tuple[SentencePieceTokenizer, Any]:
    """Ours and theirs, of one directory."""
    kind, apart = request.param
    folder = marian(tmp_path_factory.mktemp("marian"), kind, apart=apart)
    theirs = transformers.MarianTokenizer(
        source_spm=str(folder / "source.spm"),
        target_spm=str(folder / "target.spm"),
        vocab=str(folder / "vocab.json"),
        target_vocab_file=str(folder / "target_vocab.json") if apart else None,
        separate_vocabs=apart,
    )
    return SentencePieceTokenizer.read_marian(folder), theirs


def their_ids(theirs: Any, line: str, side: str) -> list[int]:
    """Without </s>; a typed special token is text, as it is here."""
    given = {"text_target": line} if side == "target" else {"text": line}
    ids = theirs(**given, split_special_tokens=True, add_special_tokens=False)["input_ids"]
    return list(ids)


def foreign(known: list[int], ids: list[int]) -> list[int]:
    return [known[i] for i in ids]


QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


@QUICK
@given(TEXT)
def test_encodes_as_marian(both: tuple[SentencePieceTokenizer, Any], line: str) -> None:
    ours, theirs = both
    [source], [target] = ours.encode([line]), ours.encode([line], "target")
    assert foreign(ours.order_of("source").foreign_ids, source) == their_ids(theirs, line, "source")
    assert foreign(ours.order.foreign_ids, target) == their_ids(theirs, line, "target")
    assert all(i > EOS for i in [*source, *target])


@pytest.mark.parametrize("line", ODD, ids=ascii)
def test_encodes_odd_lines_as_marian(both: tuple[SentencePieceTokenizer, Any], line: str) -> None:
    ours, theirs = both
    assert foreign(ours.order_of("source").foreign_ids, ours.encode([line])[0]) == their_ids(
        theirs, line, "source"
    )


@QUICK
@given(st.data())
def test_decodes_as_marian(both: tuple[SentencePieceTokenizer, Any], data: Any) -> None:
    ours, theirs = both
    known = ours.order.foreign_ids
    ids = data.draw(st.lists(st.integers(EOS, ours.size - 1), max_size=30))
    if not ours.shared:  # they look for the ids of the source's special tokens in the target
        wrong = {theirs.pad_token_id, theirs.target_encoder["<pad>"]}
        ids = [i for i in ids if known[i] not in wrong]
    [text] = ours.decode([ids])
    assert text == theirs.decode(foreign(ours.order.foreign_ids, ids), skip_special_tokens=True)


def test_the_ids_of_special_symbols(both: tuple[SentencePieceTokenizer, Any]) -> None:
    """</s> is their first entry, and <s> their <pad>, with which decoding begins."""
    ours, theirs = both
    last = max((theirs.encoder if ours.shared else theirs.target_encoder).values())
    assert ours.order.foreign_ids[:4] == [-1, last, 0, 1]
    assert sorted(ours.order.foreign_ids[1:]) == list(range(last + 1))
    assert ours.size == last + 2
    assert ours.source_size == len(theirs.encoder) + 1


def test_a_pad_that_is_an_entry_like_others(tmp_path: Path) -> None:
    """Where their generation may produce <pad>, it is an entry, which decoding leaves out."""
    folder = marian(tmp_path, "bpe")
    pad = max(json.loads((folder / "vocab.json").read_text("utf-8")).values())
    ours = SentencePieceTokenizer.read_marian(folder, specials=(-1, -1, 0), size=pad + 9)
    assert ours.order.foreign_ids == [-1, -1, 0, *range(1, pad + 9)]
    assert ours.decode([[ours.order.foreign_ids.index(pad)]]) == [""]
    assert ours.decode([[ours.size - 1]]) == [""]  # a row of the embedding without a piece


def test_is_saved_with_its_files_and_opened(tmp_path: Path) -> None:
    for apart in (False, True):
        folder = tmp_path / str(apart)
        folder.mkdir()
        ours = SentencePieceTokenizer.read_marian(marian(folder, "unigram", apart=apart))
        copy = tmp_path / f"copy-{apart}"
        copy.mkdir()
        ours.save(copy / "tokenizer.json")
        expected = ["source.spm", "target.spm", "target_vocab.json", "tokenizer.json", "vocab.json"]
        if not apart:
            expected.remove("target_vocab.json")
        assert sorted(p.name for p in copy.iterdir()) == expected
        for file in copy.glob("*.spm"):
            assert file.read_bytes() == (folder / file.name).read_bytes()
        others: list[AnyTokenizer] = [
            open_tokenizer(copy),
            open_tokenizer(copy / "tokenizer.json"),
            pickle.loads(pickle.dumps(ours)),
        ]
        for other in others:
            assert other.fingerprint == ours.fingerprint
            assert other.shared is not apart
            assert (other.size, other.source_size) == (ours.size, ours.source_size)
            assert other.encode(ODD) == ours.encode(ODD)
            assert other.encode(GERMAN, "target") == ours.encode(GERMAN, "target")
            assert other.decode(other.encode(GERMAN, "target")) == ours.decode(
                ours.encode(GERMAN, "target")
            )


@pytest.mark.parametrize("kind", KINDS)
def test_one_model_with_its_own_ids(kind: str, tmp_path: Path) -> None:
    """As marian-nmt uses a SentencePiece model as vocabulary; bytes spell unknown letters."""
    model = trained(ENGLISH + GERMAN, kind, 400, byte_fallback=True, pad_id=3)
    (tmp_path / "vocab.spm").write_bytes(model)
    ours = SentencePieceTokenizer.read(tmp_path / "vocab.spm")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert ours.order.foreign_ids[:4] == [3, 1, 2, 0]
    lines = [*ODD, *GERMAN]
    encoded = ours.encode(lines)
    assert [foreign(ours.order.foreign_ids, ids) for ids in encoded] == theirs.encode(lines)
    assert encoded == ours.encode(lines, "target")
    arrays = [ids.tolist() for ids in ours.encode_arrays(lines)]
    assert arrays == encoded
    assert arrays == [ids.tolist() for ids in ours.encode_arrays(lines, "target")]
    spelled = [theirs.decode(theirs.encode(line)).strip() for line in lines]
    assert ours.decode(encoded) == [text.replace("▁", " ").strip() for text in spelled]
    assert ours.decode(encoded, "source") == ours.decode(encoded)


def by_hand(path: Path) -> Path:
    """A unigram model of some pieces and three letters."""
    from sentencepiece import sentencepiece_model_pb2

    model: Any = sentencepiece_model_pb2.ModelProto()
    pieces = {"<unk>": 2, "<s>": 3, "</s>": 3} | dict.fromkeys(["▁the", "▁th", "▁", *"the"], 1)
    for score, (piece, kind) in enumerate(pieces.items()):
        model.pieces.add(piece=piece, score=-float(score), type=kind)
    path.write_bytes(model.SerializeToString())
    return path


def test_text_may_be_cut_only_into_pieces_of_the_vocabulary(tmp_path: Path) -> None:
    """As by the method SetVocabulary of sentencepiece 0.2.0, of which the results are."""
    spm = by_hand(tmp_path / "some.spm")
    less = {"<unk>": 0, "</s>": 1, "▁th": 2, "e": 3}
    names = {}
    for restricted in (False, True):
        its = SentencePieceSettings(restricted=restricted)
        ours = SentencePieceTokenizer.read(spm, None, less, {**less, "▁the": 4}, settings=its)
        names[restricted] = ours.names(ours.encode(["the th"])[0], "source")
        cutter = sentencepiece.SentencePieceProcessor(model_proto=ours.cutter)
        assert cutter.encode("the", out_type=str) == (["▁th", "e"] if restricted else ["▁the"])
        [target] = ours.encode(["the th"], "target")
        assert ours.names(target, "target") == [" the", " th"]
    ours.save(tmp_path / "tokenizer.json")
    assert names == {False: ["<unk>", " th"], True: [" th", "e", " th"]}
    assert open_tokenizer(tmp_path).encode(["the th"]) == ours.encode(["the th"])


def test_a_setting_that_is_not_used_changes_no_fingerprint(tmp_path: Path) -> None:
    """The fingerprint is of a tokenizer.json that was written before there was `restricted`."""
    ours = SentencePieceTokenizer.read(by_hand(tmp_path / "some.spm"))
    assert ours.fingerprint.startswith("41d32fc5e558f2c3")
    its = SentencePieceSettings(restricted=True)
    other = SentencePieceTokenizer.read(tmp_path / "some.spm", settings=its)
    assert other.fingerprint != ours.fingerprint


def test_names_of_pieces(tmp_path: Path) -> None:
    ours = SentencePieceTokenizer.read_marian(marian(tmp_path, "bpe", apart=True))
    for side, line in (("source", ENGLISH[0]), ("target", GERMAN[0])):
        [ids] = ours.encode([line]) if side == "source" else ours.encode([line], "target")
        beyond = len(ours.order_of(side).foreign_ids)  # type: ignore[arg-type]
        names = ours.names([1, beyond, *ids, 2], side)  # type: ignore[arg-type]
        assert names[:2] == ["<s>", ""]  # a model may have more entries than its tokenizer
        assert names[-1] == "</s>"
        assert "".join(names[2:-1]) == " " + line


def test_tidied_text(tmp_path: Path) -> None:
    ours = SentencePieceTokenizer.read_marian(
        marian(tmp_path, "bpe", clean_up_tokenization_spaces=True)
    )
    [ids] = ours.encode(["ich weiß nicht , was du meinst !"], "target")
    assert ours.decode([ids]) == ["ich weiß nicht, was du meinst!"]


def test_a_lone_surrogate_is_refused(tmp_path: Path) -> None:
    ours = SentencePieceTokenizer.read_marian(marian(tmp_path, "bpe"))
    with pytest.raises(DataError, match=r"line 2 has a lone surrogate \(U\+D800\)"):
        ours.encode(["cat", "\ud800"])


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_link(path: Path) -> None:
    path.rename(path.with_suffix(".away"))
    path.symlink_to(path.with_suffix(".away"))


def _as_huge(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(2**26 + 1)


DAMAGE: dict[str, tuple[str, Any, str]] = {
    "a model cut short": ("source.spm", _cut, "damaged, or not a SentencePiece model"),
    "an empty model": ("target.spm", lambda p: p.write_bytes(b""), "not a SentencePiece model"),
    "no model": ("target.spm", Path.unlink, "No such file"),
    "a directory": ("source.spm", _as_directory, "is not a regular file"),
    "a link": ("source.spm", _as_link, "is a symbolic link"),
    "a huge file": ("vocab.json", _as_huge, "more than 64 MiB"),
    "cut JSON": ("vocab.json", _cut, "it is not JSON"),
    "no UTF-8": ("vocab.json", lambda p: p.write_bytes(b'{"\xff": 0}'), "it is not UTF-8 text"),
    "deep": ("vocab.json", lambda p: p.write_text("[" * 10**6), "nested too deep"),
    "a list": ("vocab.json", lambda p: p.write_text("[1]"), "no JSON object of pieces and ids"),
    "none": ("vocab.json", lambda p: p.write_text("{}"), "no JSON object of pieces and ids"),
    "an id of two": (
        "vocab.json",
        lambda p: p.write_text('{"</s>": 0, "<unk>": 1, "a": 2, "b": 2}'),
        "the pieces 'a' and 'b' have the same id, 2",
    ),
    "a piece of two": (
        "vocab.json",
        lambda p: p.write_text('{"</s>": 0, "<unk>": 1, "a": 2, "a": 3}'),
        "has the key 'a' twice",
    ),
    "a negative id": (
        "vocab.json",
        lambda p: p.write_text('{"</s>": 0, "<unk>": -1}'),
        "has the id -1: an id is a whole number from 0 to 999,999",
    ),
    "a huge id": (
        "vocab.json",
        lambda p: p.write_text('{"</s>": 0, "<unk>": 1000000000000}'),
        "has the id 1000000000000",
    ),
    "a fraction": ("vocab.json", lambda p: p.write_text('{"</s>": 0.5}'), "has the id 0.5"),
    "a truth": ("vocab.json", lambda p: p.write_text('{"</s>": true}'), "has the id True"),
    "nothing unknown": (
        "vocab.json",
        lambda p: p.write_text('{"</s>": 0, "a": 1}'),
        "has no piece '<unk>'",
    ),
    "no end": (
        "vocab.json",
        lambda p: p.write_text('{"<unk>": 0, "a": 1}'),
        "the vocabulary has no end of sentence",
    ),
    "settings": ("tokenizer_config.json", lambda p: p.write_text("3"), "not a JSON object"),
    "a strange token": (
        "tokenizer_config.json",
        lambda p: p.write_text('{"eos_token": 3}'),
        "eos_token is 3",
    ),
    "tokens that are no list": (
        "tokenizer_config.json",
        lambda p: p.write_text('{"additional_special_tokens": -1}'),
        "additional_special_tokens is -1: take the file",
    ),
    "tokens that are no object": (
        "tokenizer_config.json",
        lambda p: p.write_text('{"added_tokens_decoder": ["x"]}'),
        "added_tokens_decoder is \\['x'\\]: take the file",
    ),
    "drawn pieces": (
        "tokenizer_config.json",
        lambda p: p.write_text('{"sp_model_kwargs": {"enable_sampling": true}}'),
        "asks for another division of a text each time",
    ),
    "added text": (
        "tokenizer_config.json",
        lambda p: p.write_text('{"added_tokens_decoder": {"9": {"content": "x"}}}'),
        "adds 'x' to the vocabulary as text",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_refused(name: str, tmp_path: Path) -> None:
    file, damage, problem = DAMAGE[name]
    folder = marian(tmp_path, "bpe")
    damage(folder / file)
    with pytest.raises(ModelError, match=problem) as refused:
        SentencePieceTokenizer.read_marian(folder)
    assert str(refused.value).startswith(str(folder))
    assert "\n" not in str(refused.value)


def test_a_vocabulary_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = marian(tmp_path, "bpe")
    with pytest.raises(
        ModelError, match=r"the model has 50 entries: it is the vocabulary of anoth"
    ):
        SentencePieceTokenizer.read_marian(folder, specials=(-1, 5, 0), size=50)
    with pytest.raises(ModelError, match="a special symbol has id 500 of"):
        SentencePieceTokenizer.read_marian(folder, specials=(-1, 500, 0))


def test_each_part_of_a_long_line_gets_the_code_of_its_language(tmp_path: Path) -> None:
    ours = SentencePieceTokenizer.read_marian(marian(tmp_path, "bpe"))
    line = ">>de<< the cat sat on the mat, and the dog sat on the cat; the dog saw the cat."
    assert ours.prefix(line) == ">>de<<"
    assert ours.prefix(line[6:]) == ""
    heard: list[list[int]] = []

    class Heard(Transformer):
        def start(self, source: Rows) -> DecoderState:
            heard.extend(source.ids.tolist())
            return super().start(source)

    recipe = Recipe().but(layers=1, d_model=8, d_ff=8, heads=1, beam=1, max_extra=1)
    model = Heard(recipe.model, ours.size).eval()
    model.compute_by(for_inference(torch.device("cpu"), torch.float32))
    Translator(model, ours, recipe.search, 9).translate([line], split=True)
    [[code]] = ours.encode([">>de<<"])
    assert len(heard) > 2
    assert all(ids[0] == code for ids in heard)
    assert all(code not in ids[1:] for ids in heard)


def message(number: int, value: bytes) -> bytes:
    """A field of Protocol Buffers."""
    size, digits = len(value), b""
    while size > 127:
        digits += bytes([size % 128 + 128])
        size //= 128
    return bytes(_digits(number << 3 | 2)) + digits + bytes([size]) + value


def _digits(number: int) -> list[int]:
    return [number] if number < 128 else [number % 128 + 128, number // 128]


def test_a_model_that_lengthens_text_beyond_measure_is_refused(tmp_path: Path) -> None:
    model = trained(ENGLISH, "bpe", 90)
    bomb = b"\0\0\0\0" + b"a" * 20_000 + b"\0"
    for more in (message(3, message(2, bomb)), message(5, message(2, bomb))):
        (tmp_path / "bomb.spm").write_bytes(model + more)
        with pytest.raises(ModelError, match=r"may lengthen a text 20,000 times, and 10,000"):
            SentencePieceTokenizer.read(tmp_path / "bomb.spm")
    (tmp_path / "bomb.spm").write_bytes(model + message(2, message(44, b"?" * 10_001)))
    with pytest.raises(ModelError, match=r"may lengthen a text 10,001 times"):
        SentencePieceTokenizer.read(tmp_path / "bomb.spm")


@given(st.binary(max_size=40))
@QUICK
def test_no_bytes_are_taken_for_a_model(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "some.spm")
        path.write_bytes(content)
        with pytest.raises(ModelError, match="damaged, or not a SentencePiece model"):
            SentencePieceTokenizer.read(path)
