"""The preparation benchmark makes a corpus of the right kinds of pairs, and measures."""

from pathlib import Path

import preparation
import pytest


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    for side in ("en", "fr"):
        lines = "".join(f"{side} says {i} of {i * i} words\n" for i in range(101))
        (tmp_path / side).write_text(lines, "utf-8")
    return tmp_path / "en", tmp_path / "fr"


def test_the_corpus_has_new_pairs_copies_and_empty_ones(texts: tuple[Path, Path]) -> None:
    made = texts[0].with_name("made.en"), texts[0].with_name("made.fr")
    preparation.write_corpus(*made, texts, 5003)
    originals, pairs = (
        list(zip(*(path.read_text("utf-8").split("\n")[:-1] for path in paths), strict=True))
        for paths in (texts, made)
    )
    assert len(pairs) == 5003
    assert 0.07 < sum(pair in originals for pair in pairs) / 5003 < 0.13
    assert 5 < sum(not source for source, _ in pairs) < 60
    assert len(set(pairs)) > 4000
    preparation.write_corpus(texts[0].with_name("again"), made[1], texts, 5003)
    assert texts[0].with_name("again").read_bytes() == made[0].read_bytes()


def test_a_tiny_run_is_measured(texts: tuple[Path, Path]) -> None:
    measured = preparation.measure(*texts, 101, workers=1)
    assert tuple(measured.seconds) == preparation.PARTS
    assert min(measured.seconds.values()) >= 0
    assert measured.per_second() > 0
    assert measured.processor > 0
    assert measured.main == measured.together > 10
    assert preparation.row(measured)[:2] == ["101", "1"]
