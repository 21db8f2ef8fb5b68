import json
from pathlib import Path

import numpy as np
import pytest

from regard.data.pairs import EncodedSentences, Pairs, SideWriter
from regard.data.prepare import prepare_text
from regard.errors import DataError
from regard.recipe import Recipe
from regard.text.tokenizer import EOS, Tokenizer

SOURCES = [f"the {i} cats sat on {i * i} mats" for i in range(101)]
TARGETS = [f"die {i} Katzen saßen auf {i * i} Matten" for i in range(101)]


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    (tmp_path / "en").write_text("\n".join(SOURCES), "utf-8")
    (tmp_path / "de").write_text("\n".join(TARGETS), "utf-8")
    recipe = Recipe().but(vocabulary=307, held_out=7)
    prepare_text([tmp_path / "en"], [tmp_path / "de"], tmp_path / "out", recipe)
    return tmp_path / "out"


def refusal(directory: Path, split: str = "train") -> str:
    with pytest.raises(DataError) as caught:
        Pairs.open(directory, split)
    return str(caught.value)


def test_pairs_are_the_text_in_order(prepared: Path) -> None:
    tokenizer = Tokenizer.load(prepared / "tokenizer.json")
    held_out = (prepared / "valid.source.txt").read_text("utf-8").splitlines()
    expected = [pair for pair in zip(SOURCES, TARGETS, strict=True) if pair[0] not in held_out]
    pairs = Pairs.open(prepared, "train")
    assert len(pairs) == len(expected) == 94
    sources = [pairs.source(i).tolist() for i in range(94)]
    targets = [pairs.target(i).tolist() for i in range(94)]
    assert list(zip(tokenizer.decode(sources), tokenizer.decode(targets), strict=True)) == expected
    assert all(ids[-1] == EOS and EOS not in ids[:-1] for ids in (*sources, *targets))
    assert pairs.source_lengths.tolist() == [len(ids) for ids in sources]
    assert pairs.target_lengths.tolist() == [len(ids) for ids in targets]
    assert pairs.source_lengths.dtype == pairs.target_lengths.dtype == np.int32


def test_there_is_no_pair_before_the_first_or_after_the_last(prepared: Path) -> None:
    pairs = Pairs.open(prepared, "valid")
    for i in (-1, len(pairs)):
        with pytest.raises(IndexError):
            pairs.source(i)
        with pytest.raises(IndexError):
            pairs.target(i)


def test_fingerprints_tell_splits_and_corpora_apart(prepared: Path, tmp_path: Path) -> None:
    (tmp_path / "de").write_text("\n".join(TARGETS[1:] + TARGETS[:1]), "utf-8")
    recipe = Recipe().but(vocabulary=307, held_out=7)
    prepare_text([tmp_path / "en"], [tmp_path / "de"], tmp_path / "other", recipe)
    prints = [
        Pairs.open(d, s).fingerprint
        for d in (prepared, tmp_path / "other")
        for s in ("train", "valid")
    ]
    assert len(set(prints)) == 4


@pytest.mark.parametrize(
    ("vocabulary", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)], ids=["two", "four"]
)
def test_ids_take_two_bytes_where_they_fit(tmp_path: Path, vocabulary: int, dtype: type) -> None:
    writer = SideWriter(tmp_path / "train.source", vocabulary)
    for sentences in ([[vocabulary - 1], []], [], [[3, 4]]):
        writer.append(EncodedSentences.of(sentences, vocabulary))
    writer.close()
    ids = np.load(tmp_path / "train.source.ids.npy")
    assert ids.dtype == dtype
    assert ids.tolist() == [vocabulary - 1, EOS, EOS, 3, 4, EOS]
    assert np.load(tmp_path / "train.source.starts.npy").tolist() == [0, 2, 3, 6]
    assert writer.tokens == 6


def test_what_is_not_prepared_data_is_refused(prepared: Path, tmp_path: Path) -> None:
    assert "is not prepared data" in refusal(tmp_path)
    assert "is not prepared data" in refusal(tmp_path / "missing")
    assert "does not list the files of test" in refusal(prepared, "test")


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 10**5, '{"format": "other"}', "\udcff"])
def test_a_damaged_manifest_is_refused(prepared: Path, content: str) -> None:
    (prepared / "manifest.json").write_text(content, "utf-8", errors="surrogateescape")
    assert str(prepared / "manifest.json") in refusal(prepared)


def test_missing_truncated_and_grown_arrays_are_refused(prepared: Path) -> None:
    for part in ("source.ids", "target.starts"):
        path = prepared / f"train.{part}.npy"
        whole = path.read_bytes()
        for damaged in (b"", whole[:-1], whole[:50], whole + b"\0"):
            path.write_bytes(damaged)
            assert f"{path}: is damaged" in refusal(prepared)
        path.unlink()
        assert f"{path}: cannot be read: No such file" in refusal(prepared)
        path.write_bytes(whole)
    Pairs.open(prepared, "train")


def overwrite(path: Path, place: int, value: int) -> None:
    mapped = np.load(path, mmap_mode="r+")
    mapped[place] = value
    mapped.flush()


@pytest.mark.parametrize(("place", "value"), [(0, 1), (1, 0), (5, 10**6), (5, -1), (-1, 3)])
def test_starts_that_do_not_fill_the_ids_are_refused(
    prepared: Path, place: int, value: int
) -> None:
    overwrite(prepared / "train.target.starts.npy", place, value)
    assert "train.target.starts.npy: is damaged" in refusal(prepared)


def test_a_header_that_promises_more_is_refused(prepared: Path) -> None:
    path = prepared / "train.source.ids.npy"
    path.write_bytes(path.read_bytes().replace(b"'<u2'", b"'|O8'"))  # objects would be unpickled
    assert f"{path}: is damaged" in refusal(prepared)


def test_sides_of_different_length_are_refused(prepared: Path) -> None:
    manifest = json.loads((prepared / "manifest.json").read_text("utf-8"))
    for part in ("ids", "starts"):
        for field in ("bytes", "sha256"):
            files = manifest["files"]
            files[f"train.target.{part}.npy"][field] = files[f"valid.target.{part}.npy"][field]
        (prepared / f"valid.target.{part}.npy").rename(prepared / f"train.target.{part}.npy")
    (prepared / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    assert "94 train sources but 7 targets" in refusal(prepared)


def test_another_tokenizer_is_refused(prepared: Path) -> None:
    Tokenizer.learn(SOURCES, "bpe", 311).save(prepared / "tokenizer.json")
    assert "is not the tokenizer that this data was prepared with" in refusal(prepared)
    (prepared / "tokenizer.json").unlink()
    assert "cannot be read: No such file" in refusal(prepared)
