"""A preparation that cannot be made is refused, and leaves what was there as it was."""

import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from data.preparing import RECIPE, SOURCES, TARGETS, Corpus, everything_below
from regard.data import aligned
from regard.data import prepare as module
from regard.data.aligned import Progress
from regard.data.pairs import Pairs
from regard.data.prepare import prepare_text
from regard.errors import DataError, ModelError, RecipeError, RegardError

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
    drawn = corpus.refusal(RECIPE.but(max_length=2))
    assert re.search(r"no pair is left to train on \(\d+ read: .*\d+ too long", drawn)


def test_one_pair_again_and_again_is_refused(corpus: Corpus) -> None:
    corpus.write(SOURCES[:1] * 50, TARGETS[:1] * 50)
    assert "has 50 pairs, and 1 different one that can be used" in corpus.refusal()


def test_validation_files_without_a_whole_pair_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "blank").write_text("\n\n\n", "utf-8")
    blank = [tmp_path / "blank"]
    message = corpus.refusal(valid_sources=blank, valid_targets=blank)
    assert f"{blank[0]}: no pair is left to validate on (3 read: 3 empty)" in message


def test_text_that_is_not_utf_8_is_refused_with_its_line(corpus: Corpus) -> None:
    corpus.target.write_bytes(corpus.target.read_bytes().replace(b"auf 49 ", b"\xfcber "))
    assert f"{corpus.target}:8: is not UTF-8" in corpus.refusal()


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


@pytest.mark.parametrize("longer", [True, False])
def test_text_that_changes_while_it_is_read_is_refused(corpus: Corpus, longer: bool) -> None:
    changed = False

    def change(progress: Progress) -> None:
        nonlocal changed
        if progress.stage == "learn" and progress.done and not changed:
            changed = True
            more = ["more"] * (20 if longer else 0)
            corpus.write([*SOURCES, *more], [*TARGETS[::-1], *more])

    with pytest.raises(DataError, match=r"text\.en: has changed while it was read: do not change"):
        corpus.prepare(RECIPE.but(deduplicate=True), progress=change)
    assert not corpus.out.exists()


def test_validation_text_that_changes_while_it_is_read_is_refused(
    corpus: Corpus, tmp_path: Path
) -> None:
    valid = tmp_path / "valid"
    valid.write_text("some words\n", "utf-8")

    def change(progress: Progress) -> None:
        valid.write_text("other words\n", "utf-8")

    with pytest.raises(DataError, match="valid: has changed while it was read"):
        corpus.prepare(progress=change, valid_sources=[valid], valid_targets=[valid])
    assert not corpus.out.exists()


@pytest.mark.parametrize("stage", ["survey", "learn", "encode"])
def test_text_that_is_taken_away_while_it_is_read_is_named(corpus: Corpus, stage: str) -> None:
    def take_away(progress: Progress) -> None:
        if progress.stage == stage and progress.done == progress.total:
            corpus.target.unlink()

    with pytest.raises(DataError, match=f"^{corpus.target}: no such file$"):
        corpus.prepare(progress=take_away)
    assert not corpus.out.exists()


# Tokenizers that are refused.


def test_wrong_tokenizers_are_refused(corpus: Corpus, tmp_path: Path) -> None:
    before = everything_below(tmp_path)
    with pytest.raises(ModelError, match="cannot read the tokenizer"):
        corpus.prepare(tokenizer=tmp_path / "missing.json")
    with pytest.raises(RecipeError, match="give at least 515"):
        corpus.prepare(RECIPE.but(kind="wordpiece", vocabulary=500))
    assert everything_below(tmp_path) == before


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


@pytest.mark.parametrize("relative", [False, True])
def test_the_current_directory_is_not_replaced(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, relative: bool
) -> None:
    corpus.out.mkdir()
    monkeypatch.chdir(corpus.out)
    out = Path() if relative else corpus.out
    with pytest.raises(RegardError, match="is the current directory: name a folder in it"):
        prepare_text([corpus.source], [corpus.target], out, RECIPE)


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


def test_a_link_to_itself_is_no_place_for_data(corpus: Corpus) -> None:
    corpus.out.symlink_to(corpus.out)
    with pytest.raises(DataError, match="out: cannot be written: Not a directory"):
        corpus.prepare()
    assert {path.name for path in corpus.out.parent.iterdir()} == {"out", "text.de", "text.en"}


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
