"""MosesTokenizer against sacremoses and subword-nmt's own apply_bpe, with merges learned here."""

import html
import io
import json
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sacremoses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.errors import DataError, ModelError
from regard.text.foreign import MosesTokenizer
from regard.text.foreign.moses import LONGEST_WORD, MosesSettings
from regard.text.opening import open_tokenizer
from regard.text.tokenizer import EOS

pytest.importorskip("subword_nmt")
from subword_nmt.apply_bpe import BPE, read_vocabulary
from subword_nmt.learn_bpe import learn_bpe

ENGLISH = [
    "the cat that the dog saw sat on the mat, and the dog sat on the cat's mat.",
    'I do not know what "you" mean: it is 12,345 things at once & more!',
] * 3
GERMAN = [
    "die Katze, die der Hund sah, saß auf der Matte; der Hund saß daneben.",
    "sie sagte „hallo“, und dann – gar nichts, z. B. Dr. Müller-Lüdenscheidt.",
] * 3
ODD = [
    "", " ", "  two  spaces ", "\t", "the\nmat", "\x00", "\u200d", "👩‍👩‍👧 cat 🐈", "e\u0301té é",
    "고양이", "@@ the@@ @-@", "<unk> <pad> </s> <s>", "&amp; &lt;cat&gt;", "well-known cat",
    "\u3000the\u00a0cat", "the cat " * 300, "...", "http://cat.mat/the?dog=1",
]  # fmt: skip
TEXT = st.text() | st.lists(st.sampled_from([*ODD, "cat", "Hund", " "])).map("".join)
QUICK = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=60)


def learned(lines: list[str], merges: int) -> str:
    out = io.StringIO()
    learn_bpe(io.StringIO("\n".join(lines) + "\n"), out, merges)
    return out.getvalue()


def tokenised(lines: list[str], language: str) -> list[str]:
    words = sacremoses.MosesTokenizer(language)
    return [words.tokenize(line, return_str=True) for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Joint merges; for each side its pieces with counts, and its vocabulary."""
    folder: Path = tmp_path_factory.mktemp("moses")
    sides = {"source": tokenised(ENGLISH, "en"), "target": tokenised(GERMAN, "de")}
    (folder / "codes").write_text(learned([*sides["source"], *sides["target"]], 60), "utf-8")
    with (folder / "codes").open(encoding="utf-8") as codes:
        bpe = BPE(codes)
    for side, lines in sides.items():
        counts = Counter(piece for line in lines for piece in bpe.process_line(line).split())
        text = "".join(f"{piece} {count}\n" for piece, count in counts.most_common())
        (folder / f"{side}.counts").write_text(text, "utf-8")
        letters = {letter for line in lines for letter in line if letter != " "}
        names = ["<unk>", "<pad>", "<s>", "</s>", *counts, *letters, *(c + "@@" for c in letters)]
        ids = {piece: i for i, piece in enumerate(dict.fromkeys(names))}
        (folder / f"{side}.json").write_text(json.dumps(ids), "utf-8")
    return folder


@pytest.fixture(scope="module")
def ours(folder: Path) -> MosesTokenizer:
    return MosesTokenizer.read(
        folder / "source.json",
        folder / "target.json",
        codes=folder / "codes",
        counts=folder / "source.counts",
        target_counts=folder / "target.counts",
        settings=MosesSettings(target_language="de", threshold=4, source_threshold=5),
    )


def their_ids(folder: Path, side: str, line: str) -> list[int]:
    threshold = 4 if side == "target" else 5
    with (folder / f"{side}.counts").open(encoding="utf-8") as file:
        frequent = read_vocabulary(file, threshold)
    with (folder / "codes").open(encoding="utf-8") as codes:
        bpe = BPE(codes, vocab=frequent)
    [text] = tokenised([line], "en" if side == "source" else "de")
    ids = json.loads((folder / f"{side}.json").read_text("utf-8"))
    known = {piece: i for piece, i in ids.items() if piece not in ("<pad>", "<s>", "</s>")}
    return [known.get(piece, ids["<unk>"]) for piece in bpe.process_line(text).split(" ") if piece]


@QUICK
@given(TEXT)
def test_encodes_as_subword_nmt(folder: Path, ours: MosesTokenizer, line: str) -> None:
    [source], [target] = ours.encode([line]), ours.encode([line], "target")
    assert [ours.order_of("source").foreign_ids[i] for i in source] == their_ids(
        folder, "source", line
    )
    assert [ours.order.foreign_ids[i] for i in target] == their_ids(folder, "target", line)
    assert all(i > EOS for i in [*source, *target])


@QUICK
@given(st.data())
def test_decodes_as_sed_and_sacremoses(folder: Path, ours: MosesTokenizer, data: Any) -> None:
    """Pieces are joined as subword-nmt's README does it with sed; then Moses' detokenizer."""
    ids = data.draw(st.lists(st.integers(EOS, ours.size - 1), max_size=30))
    names = {i: p for p, i in json.loads((folder / "target.json").read_text("utf-8")).items()}
    pieces = [names[ours.order.foreign_ids[i]] for i in ids]
    specials = ("<unk>", "<pad>", "<s>", "</s>")
    joined = re.sub("(@@ )|(@@ ?$)", "", " ".join(p for p in pieces if p not in specials))
    assert ours.decode([ids]) == [sacremoses.MosesDetokenizer("de").detokenize(joined.split())]


def test_known_text_is_restored(ours: MosesTokenizer) -> None:
    assert ours.decode(ours.encode(GERMAN, "target")) == GERMAN
    assert ours.decode(ours.encode(ENGLISH), "source") == ENGLISH
    assert [a.tolist() for a in ours.encode_arrays(ENGLISH)] == ours.encode(ENGLISH)


def test_names_have_the_spaces_of_the_text(ours: MosesTokenizer) -> None:
    for line in ENGLISH:
        [ids] = ours.encode([line])
        names = ours.names([1, *ids, 2], "source")
        assert (names[0], names[-1]) == ("<s>", "</s>")
        # merges have divided &amp; and &apos; here
        assert html.unescape("".join(names[1:-1])) == " " + line


def test_settings_are_those_of_the_libraries(folder: Path) -> None:
    line = "The “Well-known” CAT’s mat & dog"
    its = MosesSettings(escaped=False, dashes_split=True, normalised=True, lowercased=True)
    ours = MosesTokenizer.read(folder / "source.json", settings=its)
    normal = sacremoses.MosesPunctNormalizer("en").normalize(line)
    words = sacremoses.MosesTokenizer("en").tokenize(
        normal, aggressive_dash_splits=True, escape=False
    )
    ids = json.loads((folder / "source.json").read_text("utf-8"))
    expected = [ids.get(word.lower(), ids["<unk>"]) for word in words]
    assert [ours.order.foreign_ids[i] for i in ours.encode([line])[0]] == expected
    spaced = MosesTokenizer.read(folder / "source.json", settings=MosesSettings(tokenised=False))
    assert len(spaced.encode(["the cat's mat."])[0]) == 3
    assert spaced.decode(spaced.encode(["the dog the"])) == ["the dog the"]


def test_what_is_not_escaped_keeps_its_name() -> None:
    names = ["<unk>", "<pad>", "<s>", "</s>", "&amp;", "the"]
    known = {name: i for i, name in enumerate(names)}
    ours = MosesTokenizer.read(known, settings=MosesSettings(tokenised=False))
    [ids] = ours.encode(["the &amp; the"])
    assert ours.decode([ids]) == ["the &amp; the"]
    assert "".join(ours.names(ids, "source")[:3]).strip() == "the &amp; the"


def test_a_piece_that_the_vocabulary_lacks_may_be_divided(folder: Path, tmp_path: Path) -> None:
    """As by JoeyNMT, which gives subword-nmt its vocabulary without the special symbols."""
    known = json.loads((folder / "source.json").read_text("utf-8"))
    known = {piece: i for piece, i in known.items() if piece not in ("the", "cat")}
    with (folder / "codes").open(encoding="utf-8") as codes:
        bpe = BPE(codes, vocab={*known} - {"<unk>", "<pad>", "<s>", "</s>"})
    its = MosesSettings(tokenised=False, restricted=True)
    ours = MosesTokenizer.read(known, codes=folder / "codes", settings=its)
    [ids] = ours.encode(["the cat sat <unk>"])
    expected = bpe.process_line("the cat sat <unk>").split()
    assert len(expected) > 8
    assert [ours.order.foreign_ids[i] for i in ids] == [
        known.get(p, known["<unk>"]) for p in expected
    ]
    ours.save(tmp_path / "tokenizer.json")
    assert open_tokenizer(tmp_path).encode(["the cat sat"]) == ours.encode(["the cat sat"])


def test_a_setting_that_is_not_used_changes_no_fingerprint() -> None:
    """The fingerprint is of a tokenizer.json that was written before there was `restricted`."""
    names = ["<unk>", "<pad>", "<s>", "</s>", "the", "t@@", "h@@", "e"]
    ours = MosesTokenizer.read({name: i for i, name in enumerate(names)})
    assert ours.fingerprint.startswith("28f25c5b4708c4f3")


def test_a_very_long_word_is_divided_in_bounded_time(ours: MosesTokenizer) -> None:
    [ids] = ours.encode(["the" * LONGEST_WORD])
    assert ours.decode([ids], "source") == ["the" * LONGEST_WORD]


def test_is_saved_with_its_files_and_opened(ours: MosesTokenizer, tmp_path: Path) -> None:
    ours.save(tmp_path / "tokenizer.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "source.codes", "source.counts", "target.counts", "target_vocab.json", "tokenizer.json",
        "vocab.json",
    ]  # fmt: skip
    for other in (open_tokenizer(tmp_path), pickle.loads(pickle.dumps(ours))):
        assert other.fingerprint == ours.fingerprint
        assert other.encode(ODD) == ours.encode(ODD)
        assert other.encode(ODD, "target") == ours.encode(ODD, "target")


def test_a_lone_surrogate_is_refused(ours: MosesTokenizer) -> None:
    with pytest.raises(DataError, match="lone surrogate"):
        ours.encode(["\ud800"])


CODES = {
    "nothing": b"",
    "only a version": b"#version: 0.2\n",
    "a later version": b"#version: 0.3\na b\n",
    "three parts": b"#version: 0.2\na b c\n",
    "one part": b"a b\nab\n",
    "no UTF-8": b"\xff \xfe\n",
    "a merge that never ends": b"#version: 0.2\n< /w>\n",
    "a merge too long": b"#version: 0.2\n" + b"a" * 150 + b" " + b"a" * 51 + b"\n",
    "a pickle": pickle.dumps({"codes": []}),
}


@pytest.mark.parametrize("name", CODES)
def test_damaged_merges_are_refused(name: str, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "codes"
    path.write_bytes(CODES[name])
    with pytest.raises(ModelError) as refused:
        MosesTokenizer.read(folder / "source.json", codes=path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_damaged_counts_are_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "counts"
    for content in ("the\n", "the x\n", "the -3\n", "the " + "9" * 5000, ""):
        path.write_text(content, "utf-8")
        with pytest.raises(ModelError, match=r"counts:1: is not a piece and its count"):
            MosesTokenizer.read(folder / "source.json", codes=folder / "codes", counts=path)


def test_a_vocabulary_of_too_many_entries_is_refused() -> None:
    with pytest.raises(ModelError, match=r"has 1,000,001 entries.*1,000,000 are allowed"):
        MosesTokenizer.read({"<unk>": 0, "</s>": 1}, size=1_000_001)
