"""Only a share of the pairs of a text is drawn for training: data.share."""

from collections import Counter
from pathlib import Path

import pytest

from data.preparing import RECIPE, SOURCES, TARGETS, Corpus
from regard.data.prepare import prepare_text
from regard.errors import RecipeError
from regard.presets import SMALL_PARSE

PAIRS = list(zip(SOURCES, TARGETS, strict=True))
HALF = RECIPE.but(share=0.5)


def test_pairs_that_are_not_drawn_are_counted_and_not_trained_on(corpus: Corpus) -> None:
    report = corpus.prepare(HALF)
    train, valid = corpus.prepared("train"), corpus.prepared("valid")
    assert 30 < report.train.kept < 70
    assert report.train.read == 101
    assert report.train.not_drawn == 101 - len(train) - len(valid)
    assert set(train).isdisjoint(valid)
    assert [pair for pair in PAIRS if pair in train] == train


def test_a_larger_share_has_all_pairs_of_a_smaller_one_and_the_same_validation(
    corpus: Corpus,
) -> None:
    found = {}
    for share in (0.75, 0.9, 1.0):
        corpus.prepare(RECIPE.but(share=share))
        found[share] = corpus.prepared("train")
        assert len(corpus.prepared("valid")) == 7
    valid = corpus.prepared("valid")
    assert set(found[0.75]) < set(found[0.9]) < set(found[1.0])
    assert sorted([*found[1.0], *valid]) == sorted(PAIRS)


def test_the_drawn_pairs_follow_the_seed_and_equal_pairs_are_drawn_together(
    corpus: Corpus,
) -> None:
    corpus.write([*SOURCES, *SOURCES], [*TARGETS, *TARGETS])
    trained = set()
    for seed in (1, 2, 3):
        corpus.prepare(HALF.but(seed=seed))
        found = corpus.prepared("train")
        assert all(found.count(pair) == 2 for pair in found)
        trained.add(tuple(found))
    assert len(trained) == 3


def test_validation_files_are_not_drawn_from(corpus: Corpus) -> None:
    report = corpus.prepare(HALF, valid_sources=[corpus.source], valid_targets=[corpus.target])
    assert report.valid.kept == 101
    assert report.valid.not_drawn == 0


def test_pairs_that_are_not_drawn_are_not_called_left_out(corpus: Corpus) -> None:
    corpus.write([*SOURCES, *[f"full {n}" for n in range(14)]], [*TARGETS, *[""] * 14])
    report = corpus.prepare(HALF)
    drawn = 115 - report.train.not_drawn
    said = f"left out: {report.train.empty} of {drawn} pairs ({report.train.empty} empty); "
    assert report.train.empty < 0.1 * 115  # it is a tenth of the pairs that are drawn
    assert list(report.remarks()) == [f"{said}trained on: {report.train.kept}"]


def test_a_share_too_small_for_any_pair_is_refused(corpus: Corpus) -> None:
    files = {"valid_sources": [corpus.source], "valid_targets": [corpus.target]}
    said = f"{corpus.source}: data.share = 1e-09 draws none of its 101 pairs: set a larger one"
    assert corpus.refusal(RECIPE.but(share=1e-9), **files) == said
    assert corpus.refusal(RECIPE.but(share=1e-9)) == said
    said = f"{corpus.source}: has 101 pairs, of which data.share draws "
    assert corpus.refusal(RECIPE.but(share=0.05)).startswith(said)
    assert "not drawn" in (few := corpus.refusal(HALF.but(max_length=2), **files))
    assert "raise data.share" in few
    assert "data.share" not in corpus.refusal(RECIPE.but(max_length=2), **files)


@pytest.mark.parametrize("share", [0, -0.1, 1.01, float("nan")])
def test_only_a_share_of_the_text_can_be_asked_for(share: float) -> None:
    with pytest.raises(RecipeError, match=r"data\.share"):
        RECIPE.but(share=share)


def test_a_parser_has_no_share() -> None:
    with pytest.raises(RecipeError, match="not for parsing"):
        SMALL_PARSE.but(share=0.5)


def test_files_that_are_mixed_keep_their_own_pairs(corpus: Corpus, tmp_path: Path) -> None:
    others = [tmp_path / "more.en", tmp_path / "more.de"]
    for path, word in zip(others, ("cat", "Katze"), strict=True):
        path.write_text("".join(f"{word} {number}\n" for number in range(100)))
    empty = tmp_path / "empty"
    empty.touch()
    sources, targets = [corpus.source, empty, others[0]], [corpus.target, empty, others[1]]
    found = {}
    for share in (0.5, 1.0):
        recipe = HALF.but(share=share, held_out=1)
        report = prepare_text(sources, targets, corpus.out, recipe, mix=[1, 2, 3])
        found[share] = Counter(corpus.prepared("train"))
        assert report.train.read == 201
    assert found[0.5] <= found[1.0]
    assert {found[1.0][pair] for pair in found[0.5] if "cats" in pair[0]} == {1}
    assert {found[1.0][pair] for pair in found[0.5] if "cats" not in pair[0]} == {3}


def test_lines_are_copied_as_they_are(corpus: Corpus) -> None:
    """A first line may look like that of a PDF, but these are first lines only in copies."""
    marks, ends = ("\ufeff", "%PDF-1.", "PK\x03\x04"), ("", "\r")
    odd = [f"{mark}{number}{end}" for mark in marks for end in ends for number in range(20)]
    corpus.write(["first", *odd], ["erste", *odd])
    found = {}
    for share in (0.04, 0.5, 1.0):
        corpus.prepare(
            RECIPE.but(share=share), valid_sources=[corpus.source], valid_targets=[corpus.target]
        )
        found[share] = set(corpus.prepared("train"))
    assert found[0.04] < found[0.5] < found[1.0]


def test_the_number_of_processes_changes_no_byte(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.data.prepare.BYTES_PER_WORKER", 1)
    monkeypatch.setattr("regard.data.aligned._BLOCK_PAIRS", 7)
    found = []
    for workers in (0, 3):
        corpus.prepare(HALF, workers=workers)
        found.append({path.name: path.read_bytes() for path in sorted(corpus.out.iterdir())})
    assert found[0] == found[1]


def test_a_bad_line_is_named_by_its_place_in_the_whole_text(corpus: Corpus) -> None:
    corpus.source.write_bytes(corpus.source.read_bytes().replace(b"the 90 ", b"the \xff "))
    assert corpus.refusal(HALF).startswith(f"{corpus.source}:91: is not UTF-8")
