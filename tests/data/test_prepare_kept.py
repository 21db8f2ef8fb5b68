"""Pairs of a text are kept to train on, held out to validate on, or dropped and counted."""

from pathlib import Path

import pytest

from data.preparing import RECIPE, SOURCES, TARGETS, Corpus, dropped
from regard.files.lines import read_lines

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
    often = 101 - held_out
    said = f"left out: {often} of 202 pairs ({often} duplicates); trained on: {often}"
    assert list(report.remarks()) == [said]
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


def test_training_pairs_that_validate_are_counted(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "valid").mkdir()
    valid = Corpus(tmp_path / "valid")
    for count, remarked in ((2, True), (0, False)):
        valid.write([*SOURCES[:count], "a new pair"], [*TARGETS[:count], "ein neues Paar"])
        report = corpus.prepare(valid_sources=[valid.source], valid_targets=[valid.target])
        assert (report.train.kept, report.train.validated) == (101, count)
        said = f"{count} training pairs are also in the validation files, which have {count + 1}"
        assert [remark[: len(said)] for remark in report.remarks()] == [said] * remarked
    assert corpus.prepare().train.validated == 0  # drawn pairs are not trained on


def test_a_document_in_a_validation_file_is_dropped(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "valid").mkdir()
    valid = Corpus(tmp_path / "valid")
    valid.write([SOURCES[0], "word " * 3000], [TARGETS[0], "Wort " * 3000])
    report = corpus.prepare(valid_sources=[valid.source], valid_targets=[valid.target])
    assert (report.valid.read, report.valid.kept, report.valid.too_long) == (2, 1, 1)
    assert corpus.prepared("valid") == [(SOURCES[0], TARGETS[0])]


def test_a_byte_order_mark_within_a_text_is_no_start_of_the_validation_file(
    corpus: Corpus, tmp_path: Path
) -> None:
    (tmp_path / "valid").mkdir()
    valid = Corpus(tmp_path / "valid")
    valid.write(["", "\ufeffa", "b"], ["x", "\ufeff", "y"])  # the first pair is dropped
    corpus.prepare(valid_sources=[valid.source], valid_targets=[valid.target])
    assert corpus.prepared("valid") == [("\ufeffa", "\ufeff"), ("b", "y")]
    for side, lines in (("source", ["\ufeffa", "b"]), ("target", ["\ufeff", "y"])):
        assert list(read_lines(corpus.out / f"valid.{side}.txt")) == lines


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
