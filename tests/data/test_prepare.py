import gzip
import itertools
import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
import zstandard

from regard.data import aligned
from regard.data import prepare as module
from regard.data.aligned import Progress
from regard.data.encoding import SplitCounts
from regard.data.pairs import FILES, Pairs
from regard.data.prepare import Report, prepare_text
from regard.errors import DataError, ModelError, RecipeError
from regard.recipe import Recipe
from regard.text.cleaning import Verdict
from regard.text.tokenizer import Tokenizer

RECIPE = Recipe().but(vocabulary=307, held_out=7)
SOURCES = [f"the {i} cats sat on {i * i} mats" for i in range(101)]
TARGETS = [f"die {i} Katzen saßen auf {i * i} Matten" for i in range(101)]


class Corpus:
    """A source and a target file, which a test may damage."""

    def __init__(self, folder: Path):
        self.source, self.target, self.out = folder / "text.en", folder / "text.de", folder / "out"
        self.write(SOURCES, TARGETS)

    def write(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        for path, lines in ((self.source, sources), (self.target, targets)):
            path.write_bytes("".join(line + "\n" for line in lines).encode())

    def prepare(self, recipe: Recipe = RECIPE, **options: object) -> Report:
        return prepare_text([self.source], [self.target], self.out, recipe, **options)  # type: ignore[arg-type]

    def refusal(self, recipe: Recipe = RECIPE, **options: object) -> str:
        """The message of the refusal; checks that no file is left behind."""
        before = everything_below(self.out.parent)
        with pytest.raises(DataError) as caught:
            self.prepare(recipe, **options)
        assert everything_below(self.out.parent) == before
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def prepared(self, split: str) -> list[tuple[str, str]]:
        """The text of the prepared pairs."""
        tokenizer, pairs = Tokenizer.load(self.out / "tokenizer.json"), Pairs.open(self.out, split)
        sources = tokenizer.decode([pairs.source(i).tolist() for i in range(len(pairs))])
        targets = tokenizer.decode([pairs.target(i).tolist() for i in range(len(pairs))])
        return list(zip(sources, targets, strict=True))


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path)


def everything_below(folder: Path) -> dict[Path, bytes]:
    return {p: b"" if p.is_dir() else p.read_bytes() for p in folder.rglob("*")}


def dropped(counts: SplitCounts) -> dict[str, int]:
    return {v.value: n for v in Verdict if (n := getattr(counts, v)) and v is not Verdict.KEPT}


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


def test_workers_refuse_the_first_bad_line_of_all(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.write(SOURCES, TARGETS[:97])
    spoilt = corpus.target.read_bytes()
    corpus.target.write_bytes(
        spoilt.replace(b"auf 49 ", b"\xfcber ").replace(b"auf 4900 ", b"\xfcber ")
    )
    monkeypatch.setattr(module, "BYTES_PER_WORKER", 1)
    monkeypatch.setattr(aligned, "_BLOCK_PAIRS", 5)
    assert f"{corpus.target}:8: is not UTF-8" in corpus.refusal(workers=2)
    corpus.target.write_bytes(spoilt)
    assert "this is the last line" in corpus.refusal(workers=2)


def test_a_link_to_itself_is_no_place_for_data(corpus: Corpus) -> None:
    corpus.out.symlink_to(corpus.out)
    with pytest.raises(DataError, match="out: cannot be written: Not a directory"):
        corpus.prepare()
    assert {path.name for path in corpus.out.parent.iterdir()} == {"out", "text.de", "text.en"}


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


# Which pairs are kept.


def test_each_reason_to_drop_a_pair_is_counted(corpus: Corpus) -> None:
    sources = [
        *SOURCES,
        "",
        "full",
        "a" * 97,
        "x",
        " ".join("abcdefghij" * 7),
        SOURCES[0],
        SOURCES[0],
    ]
    targets = [*TARGETS, "voll", " \t ", "b", "y" * 11, "eine lange Zeile", TARGETS[0], TARGETS[1]]
    corpus.write(sources, targets)
    recipe = RECIPE.but(max_length=61, max_ratio=19.0, deduplicate=True)
    report = corpus.prepare(recipe)
    # The 70 one-letter words are too long; a ratio of 97:1 is dropped, one of 11:1 is not.
    held_out = report.train.held_out
    expected = {"empty": 2, "too_long": 1, "ratio": 1, "held_out": held_out}
    if SOURCES[0] not in [source for source, _ in corpus.prepared("valid")]:
        expected["duplicates"] = 1
    assert dropped(report.train) == expected
    assert report.train.read == len(sources) == report.train.kept + sum(expected.values())
    assert corpus.prepared("train").count((SOURCES[0], TARGETS[1])) == 1


def test_the_first_of_identical_pairs_is_kept_wherever_the_others_are(corpus: Corpus) -> None:
    corpus.write([*SOURCES, *SOURCES], [*TARGETS, *TARGETS])
    report = corpus.prepare(RECIPE.but(deduplicate=True))
    held_out = len(corpus.prepared("valid"))
    assert report.train.duplicates == report.train.kept == 101 - held_out
    assert report.train.held_out == 2 * held_out
    valid = corpus.prepared("valid")
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    assert corpus.prepared("train") == [pair for pair in pairs if pair not in valid]


def test_lines_of_absurd_length_are_dropped_and_counted(corpus: Corpus) -> None:
    absurd = ["a" * 100_000, "a " * 50_000, "é" * 100_000]
    corpus.write([*SOURCES, *absurd, "short"], [*TARGETS, *absurd, "y" * 10**6])
    report = corpus.prepare()
    assert report.train.too_long == 4
    assert report.train.kept == 94


# Which pairs are held out.


def test_held_out_pairs_follow_the_seed(corpus: Corpus) -> None:
    drawn = set()
    for seed in (1, 2, 3):
        corpus.prepare(RECIPE.but(seed=seed))
        drawn.add(tuple(corpus.prepared("valid")))
    assert len(drawn) == 3


def test_held_out_pairs_come_from_all_over_the_corpus(corpus: Corpus) -> None:
    sources = [f"{i} is a number" for i in range(3001)]
    corpus.write(sources, sources)
    corpus.prepare(RECIPE.but(held_out=293))
    places = [sources.index(source) for source, _ in corpus.prepared("valid")]
    assert places == sorted(places)
    thirds = [sum(1 for p in places if p // 1001 == third) for third in range(3)]
    assert min(thirds) > 293 / 3 - 40  # five standard deviations


def test_copies_of_held_out_pairs_are_not_trained_on(corpus: Corpus) -> None:
    corpus.write(SOURCES * 3, TARGETS * 3)
    report = corpus.prepare()
    valid = corpus.prepared("valid")
    assert not set(valid) & set(corpus.prepared("train"))
    assert report.train.held_out == 3 * len(valid)
    assert report.train.duplicates == 0


@pytest.mark.parametrize("deduplicate", [True, False])
def test_common_pairs_are_held_out_no_more_often_than_others(
    corpus: Corpus, deduplicate: bool
) -> None:
    common = list(zip(SOURCES, TARGETS, strict=True))[:20]
    pairs = [*zip(SOURCES, TARGETS, strict=True), *common * 50]
    corpus.write(*map(list, zip(*pairs, strict=True)))
    held_out = []
    for seed in range(8):
        report = corpus.prepare(RECIPE.but(held_out=1000, seed=seed, deduplicate=deduplicate))
        assert report.valid.kept <= 10  # a tenth of 101 different pairs
        held_out += corpus.prepared("valid")
    often = sum(pair in common for pair in held_out)
    assert 0.1 < often / len(held_out) < 0.3  # 20 of 101 pairs are common


def test_a_tenth_at_most_is_held_out(corpus: Corpus) -> None:
    report = corpus.prepare(RECIPE.but(held_out=1000))
    assert report.valid.kept == 10


def test_what_is_held_out_is_clean(corpus: Corpus) -> None:
    sources = [s for pair in zip(SOURCES, [""] * 101, strict=True) for s in pair]
    targets = [t for pair in zip(TARGETS, ["leer"] * 101, strict=True) for t in pair]
    corpus.write(sources, targets)
    report = corpus.prepare()
    assert (report.valid.kept, report.valid.empty, report.train.empty) == (7, 0, 101)


def test_validation_files_lose_only_empty_pairs(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "valid").mkdir()
    valid = Corpus(tmp_path / "valid")
    long = " ".join("wort" for _ in range(307))
    sources = [SOURCES[0], "", " two  spaces ", "tail\u2028", long, SOURCES[0], "a"]
    targets = [TARGETS[0], "leer", "x" * 97, "\ufeffy", long, TARGETS[0], " "]
    valid.write(sources, targets)
    report = corpus.prepare(valid_sources=[valid.source], valid_targets=[valid.target])
    kept = [pair for i, pair in enumerate(zip(sources, targets, strict=True)) if i not in (1, 6)]
    assert corpus.prepared("valid") == kept
    assert (corpus.out / "valid.source.txt").read_bytes().decode().split("\n")[:-1] == [
        s for s, _ in kept
    ]
    assert (corpus.out / "valid.target.txt").read_bytes().decode().split("\n")[:-1] == [
        t for _, t in kept
    ]
    assert (report.valid.read, report.valid.kept, report.valid.empty) == (7, 5, 2)
    assert (report.train.kept, report.train.held_out) == (101, 0)


# The tokenizer.


def test_a_tokenizer_that_is_given_is_used(corpus: Corpus, tmp_path: Path) -> None:
    given = Tokenizer.learn(TARGETS, "wordpiece", 521)
    given.save(tmp_path / "given.json")
    report = corpus.prepare(tokenizer=tmp_path / "given.json")
    assert (report.fingerprint, report.vocabulary) == (given.fingerprint, given.size)
    assert Tokenizer.load(corpus.out / "tokenizer.json").fingerprint == given.fingerprint
    assert len(corpus.prepared("train")) == 94
    assert json.loads((corpus.out / "manifest.json").read_bytes())["sample"] is None


def test_the_tokenizer_learns_from_an_even_sample(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    learnt: list[str] = []
    learn = Tokenizer.learn

    def spy(lines: Sequence[str], kind: str, vocabulary: int) -> Tokenizer:
        learnt.extend(lines)
        return learn(learnt, "bpe", vocabulary)

    monkeypatch.setattr(Tokenizer, "learn", spy)
    monkeypatch.setattr(module, "LEARNT_PAIRS", 20)
    corpus.prepare(RECIPE.but(held_out=1))
    places = [SOURCES.index(line) for line in learnt[::2]]
    assert learnt[1::2] == [TARGETS[i] for i in places]
    assert 10 <= len(places) <= 30
    assert places == sorted(set(places))
    assert max(b - a for a, b in itertools.pairwise([-1, *places, 101])) < 30
    manifest = json.loads((corpus.out / "manifest.json").read_bytes())
    assert manifest["sample"] == pytest.approx(20 / 101, abs=0.03)


def test_wrong_tokenizers_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    before = everything_below(tmp_path)
    with pytest.raises(ModelError, match="cannot read the tokenizer"):
        corpus.prepare(tokenizer=tmp_path / "missing.json")
    with pytest.raises(RecipeError, match="give at least 515"):
        corpus.prepare(RECIPE.but(kind="wordpiece", vocabulary=500))
    assert everything_below(tmp_path) == before


# Text that is refused.


def test_misaligned_files_are_refused_with_both_counts(corpus: Corpus) -> None:
    corpus.write(SOURCES, TARGETS[:97])
    assert (
        f"{corpus.target}:97: this is the last line, but {corpus.source} has 101"
        in corpus.refusal()
    )
    corpus.write(SOURCES[:89], TARGETS)
    assert (
        f"{corpus.source}:89: this is the last line, but {corpus.target} has 101"
        in corpus.refusal()
    )
    corpus.write([], TARGETS)
    assert f"{corpus.source}: is empty, but {corpus.target} has 101" in corpus.refusal()


def test_files_must_come_in_pairs(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 source files but 1 target files"):
        prepare_text([corpus.source] * 2, [corpus.target], corpus.out, RECIPE)
    with pytest.raises(DataError, match="at least one source and one target"):
        prepare_text([], [], corpus.out, RECIPE)
    assert "1 source files but 0" in corpus.refusal(valid_sources=[corpus.source])


def test_an_empty_corpus_is_refused(corpus: Corpus) -> None:
    corpus.write([], [])
    assert f"{corpus.source}: is empty" in corpus.refusal()


def test_a_corpus_too_small_to_hold_out_from_is_refused(corpus: Corpus) -> None:
    corpus.write(SOURCES[:9], TARGETS[:9])
    refused = "has 9 pairs, and 9 different ones that can be used, too few to hold out"
    assert refused in corpus.refusal()
    valid = {"valid_sources": [corpus.source], "valid_targets": [corpus.target]}
    assert corpus.prepare(**valid).train.kept == 9


def test_a_corpus_that_leaves_nothing_is_refused_with_the_counts(corpus: Corpus) -> None:
    corpus.write([*SOURCES, ""], [*TARGETS, ""])
    valid = {"valid_sources": [corpus.source], "valid_targets": [corpus.target]}
    message = corpus.refusal(RECIPE.but(max_length=2), **valid)
    assert "no pair is left to train on (102 read: 1 empty, 101 too long)" in message
    assert "no pair is left to validate on" in corpus.refusal(RECIPE.but(max_length=2))


def test_one_pair_again_and_again_is_refused(corpus: Corpus) -> None:
    corpus.write(SOURCES[:1] * 50, TARGETS[:1] * 50)
    assert "has 50 pairs, and 1 different ones that can be used" in corpus.refusal()


def test_validation_files_without_a_whole_pair_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "blank").write_text("\n\n\n", "utf-8")
    blank = [tmp_path / "blank"]
    message = corpus.refusal(valid_sources=blank, valid_targets=blank)
    assert f"{blank[0]}: no pair is left to validate on (3 read: 3 empty)" in message


def test_text_that_is_not_utf_8_is_refused_with_its_line(corpus: Corpus) -> None:
    corpus.target.write_bytes(corpus.target.read_bytes().replace(b"auf 49 ", b"\xfcber "))
    assert f"{corpus.target}:8: is not UTF-8" in corpus.refusal()


def test_binary_and_truncated_files_are_refused(corpus: Corpus) -> None:
    text = corpus.target.read_bytes()
    corpus.target.write_bytes(text + b"\0")
    assert f"{corpus.target}:102: has a NUL byte" in corpus.refusal()
    corpus.target.write_bytes(lzma.compress(text)[:-20])
    assert f"{corpus.target}: ends in mid-archive" in corpus.refusal()


def test_wrong_paths_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    for wrong, said in (
        (tmp_path, "is a directory"),
        (tmp_path / "missing", "no such file"),
        (Path("-"), "standard input: is read more than once"),
    ):
        for sides in ([wrong], [corpus.target]), ([corpus.source], [wrong]):
            with pytest.raises(DataError, match=said):
                prepare_text(*sides, corpus.out, RECIPE)
        assert said in corpus.refusal(valid_sources=[wrong], valid_targets=[corpus.target])


def test_text_that_changes_while_it_is_read_is_refused(corpus: Corpus) -> None:
    grown = False

    def grow(progress: Progress) -> None:
        nonlocal grown
        if progress.stage == "learn" and progress.done and not grown:
            grown = True
            with corpus.source.open("a") as source, corpus.target.open("a") as target:
                source.write("more\n" * 20)
                target.write("mehr\n" * 20)

    with pytest.raises(DataError, match=r"had 101 pairs .* now has 121"):
        corpus.prepare(RECIPE.but(deduplicate=True), progress=grow)
    assert not corpus.out.exists()


@pytest.mark.parametrize("stage", ["survey", "learn", "encode"])
def test_text_that_is_taken_away_while_it_is_read_is_named(corpus: Corpus, stage: str) -> None:
    def take_away(progress: Progress) -> None:
        if progress.stage == stage and progress.done == progress.total:
            corpus.target.unlink()

    with pytest.raises(DataError, match=f"^{corpus.target}: no such file$"):
        corpus.prepare(progress=take_away)
    assert not corpus.out.exists()


# Outputs that are refused.


def test_earlier_prepared_data_is_replaced_and_nothing_else(corpus: Corpus, tmp_path: Path) -> None:
    corpus.out.mkdir()
    corpus.prepare()  # an empty directory is no obstacle
    corpus.write(SOURCES[1:], TARGETS[1:])
    assert corpus.prepare().train.read == 100
    assert Pairs.open(corpus.out, "train")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.de", "text.en"]
    (corpus.out / "notes").write_text("mine", "utf-8")
    assert "is not empty, and not prepared data" in corpus.refusal()
    (corpus.out / "notes").unlink()
    (corpus.out / "manifest.json").write_text("{}", "utf-8")
    assert "is not empty, and not prepared data" in corpus.refusal()


def test_a_mount_point_is_refused_before_the_work(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.out.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == corpus.out)
    assert "is a mount point, which nothing replaces: name a folder in it" in corpus.refusal()


def test_a_failure_leaves_earlier_prepared_data_as_it_was(corpus: Corpus) -> None:
    corpus.prepare()
    corpus.write(SOURCES, TARGETS[:-1])
    assert "this is the last line" in corpus.refusal()  # which compares the files that are there
    assert len(Pairs.open(corpus.out, "train")) == 94


def test_a_place_that_cannot_be_written_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    corpus.out.write_text("a file", "utf-8")
    assert "is a file" in corpus.refusal()
    corpus.out = corpus.source / "below"
    assert "Not a directory" in corpus.refusal()
    corpus.out = tmp_path / ("long" * 100)
    assert "File name too long" in corpus.refusal()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that is read-only")
def test_a_read_only_place_is_refused(corpus: Corpus) -> None:
    with pytest.raises(DataError, match="/proc/prepared: cannot be written"):
        prepare_text([corpus.source], [corpus.target], Path("/proc/prepared"), RECIPE)


def test_folders_made_on_the_way_go_when_it_fails(corpus: Corpus, tmp_path: Path) -> None:
    corpus.write(SOURCES, TARGETS[:-1])
    corpus.out = tmp_path / "not" / "yet" / "there"
    with pytest.raises(DataError, match="this is the last line"):
        corpus.prepare()
    assert not (tmp_path / "not").exists()
    corpus.write(SOURCES, TARGETS)
    corpus.prepare()
    assert len(corpus.prepared("valid")) == 7


@pytest.mark.parametrize("stage", ["survey", "learn", "encode"])
def test_an_interrupt_leaves_nothing(corpus: Corpus, tmp_path: Path, stage: str) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.stage == stage and progress.done:
            raise KeyboardInterrupt

    before = everything_below(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        corpus.prepare(progress=interrupt)
    assert everything_below(tmp_path) == before


@pytest.mark.parametrize("limit", [1_000, 5_000, 12_000])
def test_a_full_disk_is_refused_and_nothing_is_left(corpus: Corpus, limit: int) -> None:
    # A limit on the size of files acts like a full disk: any write may fail halfway.
    program = f"""
import resource, sys, warnings
from pathlib import Path
from regard.data.prepare import prepare_text
from regard.errors import DataError
from regard.recipe import Recipe
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
recipe = Recipe().but(vocabulary=307, held_out=7)
try:
    prepare_text([Path("text.en")], [Path("text.de")], Path("out"), recipe)
except DataError as error:
    print(error)
"""
    corpus.write(SOURCES * 29, TARGETS * 29)
    before = everything_below(corpus.out.parent)
    environment = os.environ | {"PYTHONWARNINGS": "error"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=corpus.out.parent,
        env=environment,
        check=False,
    )
    assert "out: cannot be written: File too large; nothing is left half-written" in run.stdout
    assert run.stderr == ""
    assert everything_below(corpus.out.parent) == before


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
