"""A text becomes pairs in order, a tokenizer, and a manifest that says what was done."""

import gzip
import itertools
import json
import lzma
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
import zstandard

from data.preparing import RECIPE, SOURCES, TARGETS, Corpus, dropped, everything_below
from regard.data import aligned, learning
from regard.data import prepare as module
from regard.data.aligned import Progress
from regard.data.pairs import FILES, Pairs
from regard.data.prepare import prepare_text
from regard.text.tokenizer import Tokenizer

# The prepared data.


def test_every_pair_is_trained_on_or_held_out_in_order(corpus: Corpus) -> None:
    report = corpus.prepare()
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    train, valid = corpus.prepared("train"), corpus.prepared("valid")
    assert train == [pair for pair in pairs if pair not in valid]
    assert valid == [pair for pair in pairs if pair in valid]
    assert (report.train.read, report.train.kept, len(train)) == (101, 94, 94)
    assert (report.valid.read, report.valid.kept, len(valid)) == (7, 7, 7)
    assert dropped(report.train) == {"held_out": 7}
    assert {path.name for path in corpus.out.iterdir()} == FILES


def test_tokens_are_counted_with_the_end_of_sentence(corpus: Corpus) -> None:
    report = corpus.prepare()
    for split, counts in (("train", report.train), ("valid", report.valid)):
        pairs = Pairs.open(corpus.out, split)
        assert counts.source_tokens == pairs.source_lengths.sum()
        assert counts.target_tokens == pairs.target_lengths.sum()


def test_files_of_every_format_are_read_one_after_the_other(corpus: Corpus, tmp_path: Path) -> None:
    packers: list[Callable[[bytes], bytes]] = [
        bytes, gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress
    ]  # fmt: skip
    files: dict[str, list[Path]] = {"en": [], "de": []}
    for number, pack in enumerate(packers):
        for side, lines in (("en", SOURCES), ("de", TARGETS)):
            path = tmp_path / f"{number}.{side}"
            path.write_bytes(pack("\n".join(lines[number * 26 : number * 26 + 26]).encode()))
            files[side].append(path)
    prepare_text(files["en"], files["de"], tmp_path / "parts", RECIPE)
    corpus.prepare()
    parts, whole = everything_below(tmp_path / "parts"), everything_below(corpus.out)
    arrays = [name for name in FILES if name != "manifest.json"]
    assert [parts[tmp_path / "parts" / n] for n in arrays] == [
        whole[corpus.out / n] for n in arrays
    ]


def test_files_are_mixed(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = [path.with_suffix(".other" + path.suffix) for path in (corpus.source, corpus.target)]
    for path, text in zip(other, ("a dog\n" * 5, "ein Hund\n" * 5), strict=True):
        path.write_text(text, "utf-8")
    sides = [corpus.source, other[0]], [corpus.target, other[1]]
    prepare_text(*sides, corpus.out, RECIPE)
    once = Counter(corpus.prepared("train"))
    monkeypatch.setattr(aligned, "_BLOCK_PAIRS", 7)
    report = prepare_text(*sides, corpus.out, RECIPE, mix=(3, 2))
    mixed = Counter(corpus.prepared("train"))
    assert mixed == {pair: n * (2 if "dog" in pair[0] else 3) for pair, n in once.items()}
    assert report.train.kept == once.total()  # pairs of the text, each counted once


def test_repeats_are_dropped_within_each_of_the_files_that_are_mixed(
    corpus: Corpus, tmp_path: Path
) -> None:
    """A pair of two files is seen as often as both say."""
    other = tmp_path / "other.en", tmp_path / "other.de"
    for path, lines in zip(other, (SOURCES[:20] * 2, TARGETS[:20] * 2), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    files, recipe = [corpus.source, other[0]], RECIPE.but(deduplicate=True)
    report = prepare_text(files, [corpus.target, other[1]], corpus.out, recipe, mix=(1, 3))
    train = Counter(corpus.prepared("train"))
    shared = [pair for pair in zip(SOURCES[:20], TARGETS[:20], strict=True) if pair in train]
    assert train == {pair: 4 if pair in shared else 1 for pair in train}
    assert report.train.duplicates == len(shared) > 10


@pytest.mark.parametrize("deduplicate", [True, False])
def test_a_tenth_of_the_different_pairs_is_held_out_though_two_files_have_them(
    corpus: Corpus, deduplicate: bool
) -> None:
    sides = [[side] * 2 for side in (corpus.source, corpus.target)]
    recipe = RECIPE.but(deduplicate=deduplicate, held_out=50)
    report = prepare_text(*sides, corpus.out, recipe, mix=(1, 1))
    assert report.valid.kept == len(SOURCES) // 10


def test_the_same_text_and_recipe_give_the_same_bytes(corpus: Corpus) -> None:
    corpus.prepare()
    first = everything_below(corpus.out)
    corpus.prepare()
    assert everything_below(corpus.out) == first


def test_blocks_leave_no_seam(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus.prepare()
    first = everything_below(corpus.out)
    monkeypatch.setattr(aligned, "_BLOCK_PAIRS", 7)
    corpus.prepare()
    assert everything_below(corpus.out) == first
    monkeypatch.setattr(aligned, "_BLOCK_BYTES", 97)
    corpus.prepare()
    assert everything_below(corpus.out) == first


def test_any_number_of_workers_gives_the_same_bytes(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RECIPE.but(deduplicate=True)
    corpus.write([*SOURCES, "", *SOURCES[7:], "x" * 99], [*TARGETS, "leer", *TARGETS[7:], "y"])
    before = asdict(corpus.prepare(recipe))
    first = everything_below(corpus.out)
    monkeypatch.setattr(module, "BYTES_PER_WORKER", 1)
    monkeypatch.setattr(aligned, "_BLOCK_PAIRS", 7)
    monkeypatch.setattr(module, "usable_cores", pytest.fail)  # that is for no number
    for workers in (0, 3):
        assert asdict(corpus.prepare(recipe, workers=workers)) == before
        assert everything_below(corpus.out) == first


def test_the_manifest_says_what_was_done(corpus: Corpus) -> None:
    report = corpus.prepare()
    manifest = json.loads((corpus.out / "manifest.json").read_text("utf-8"))
    assert manifest["counts"] == {"train": asdict(report.train), "valid": asdict(report.valid)}
    assert manifest["tokenizer"] == {
        "fingerprint": report.fingerprint,
        "size": report.vocabulary,
        "source_size": report.source_vocabulary,
    }
    assert report.source_vocabulary == report.vocabulary
    assert manifest["recipe"]["data"] == RECIPE.data.model_dump()
    (source,) = manifest["inputs"]["train.source"]
    assert (source["name"], source["bytes"]) == ("text.en", corpus.source.stat().st_size)
    assert manifest["inputs"]["valid.source"] == []


def test_a_file_name_need_not_be_utf_8(corpus: Corpus) -> None:
    corpus.source = corpus.source.rename(corpus.source.with_name(os.fsdecode(b"caf\xe9.en")))
    corpus.prepare()
    manifest = json.loads((corpus.out / "manifest.json").read_text("utf-8"))
    assert manifest["inputs"]["train.source"][0]["name"] == corpus.source.name


def test_progress_goes_through_three_readings(corpus: Corpus) -> None:
    told: list[Progress] = []
    corpus.prepare(progress=told.append)
    assert list(dict.fromkeys(p.stage for p in told)) == ["survey", "learn", "encode"]
    total = corpus.source.stat().st_size + corpus.target.stat().st_size
    for stage in ("survey", "learn", "encode"):
        first, *_, last = (p for p in told if p.stage == stage)
        assert (first.done, first.total, first.pairs) == (0, total, 0)
        assert (last.done, last.total, last.pairs) == (total, total, 101)


# The tokenizer.


def test_a_tokenizer_that_is_given_is_used(corpus: Corpus, tmp_path: Path) -> None:
    given = Tokenizer.learn(TARGETS, "wordpiece", 521)
    given.save(tmp_path / "given.json")
    report = corpus.prepare(tokenizer=tmp_path / "given.json")
    assert (report.fingerprint, report.vocabulary) == (given.fingerprint, given.size)
    assert Tokenizer.load(corpus.out / "tokenizer.json").fingerprint == given.fingerprint
    assert len(corpus.prepared("train")) == 94
    assert json.loads((corpus.out / "manifest.json").read_bytes())["sample"] is None


def lines_learnt_from(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list to which each line is added that a tokenizer learns from."""
    learnt: list[str] = []
    learn = Tokenizer.learn

    def spy(lines: Sequence[str], kind: str, vocabulary: int) -> Tokenizer:
        learnt.extend(lines)
        return learn(learnt, "bpe", vocabulary)

    monkeypatch.setattr(Tokenizer, "learn", spy)
    return learnt


def test_the_tokenizer_learns_from_an_even_sample(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt = lines_learnt_from(monkeypatch)
    monkeypatch.setattr(learning, "LEARNT_PAIRS", 20)
    corpus.prepare(RECIPE.but(held_out=1))
    places = [SOURCES.index(line) for line in learnt[::2]]
    assert learnt[1::2] == [TARGETS[i] for i in places]
    assert 10 <= len(places) <= 30
    assert places == sorted(set(places))
    assert max(b - a for a, b in itertools.pairwise([-1, *places, 101])) < 30
    manifest = json.loads((corpus.out / "manifest.json").read_bytes())
    assert manifest["sample"] == pytest.approx(20 / 101, abs=0.03)


def test_the_tokenizer_learns_from_what_is_trained_on(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither from held-out pairs nor from those that are dropped."""
    learnt = lines_learnt_from(monkeypatch)
    corpus.write([*SOURCES, "", "b"], [*TARGETS, "leer", "y" * 97])
    assert corpus.prepare().train.kept == 94
    assert list(zip(learnt[::2], learnt[1::2], strict=True)) == corpus.prepared("train")


def test_of_text_without_blanks_byte_pairs_learn_from_less(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "LEARNT_UNSPACED", 1000)
    joined = [line.replace(" ", "") + "一二三四五六七八九十" * 2 for line in TARGETS]
    shares = []
    for targets, kind in ((TARGETS, "bpe"), (joined, "bpe"), (joined, "wordpiece")):
        corpus.write(SOURCES, targets)
        corpus.prepare(RECIPE.but(kind=kind, vocabulary=700))
        shares.append(json.loads((corpus.out / "manifest.json").read_bytes())["sample"])
    assert shares == [1.0, pytest.approx(1000 / sum(map(len, joined)), rel=0.1), 1.0]


# Real text.


@pytest.mark.data
def test_real_captions_are_prepared(regard_data: Path, tmp_path: Path) -> None:
    folder, out = regard_data / "multi30k", tmp_path / "out"
    sides = {s: (folder / f"val.{s}").read_text("utf-8").split("\n")[:-1] for s in ("en", "de")}
    report = prepare_text(
        [folder / "val.en"],
        [folder / "val.de"],
        out,
        RECIPE.but(vocabulary=2003),
        valid_sources=[folder / "test_2016_flickr.en"],
        valid_targets=[folder / "test_2016_flickr.de"],
    )
    assert (report.train.read, report.valid.read, report.valid.kept) == (1014, 1000, 1000)
    assert report.train.kept + sum(dropped(report.train).values()) == 1014
    assert report.train.kept > 1000
    tokenizer, train = Tokenizer.load(out / "tokenizer.json"), Pairs.open(out, "train")
    sources = tokenizer.decode([train.source(i).tolist() for i in range(len(train))])
    targets = tokenizer.decode([train.target(i).tolist() for i in range(len(train))])
    pairs = set(zip(*sides.values(), strict=True))
    assert all(pair in pairs for pair in zip(sources, targets, strict=True))
    text = (out / "valid.target.txt").read_bytes()
    assert text == (folder / "test_2016_flickr.de").read_bytes()
