"""Displayed pieces, and words made of pieces."""

import numpy as np
import pytest

from regard.run.model_directory import Model
from regard.text.tokenizer import BOS, EOS
from regard.view.pieces import labels, merged, pieces_of_words, word_labels, words


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([" the", " dog", "."], [[0], [1], [2]]),
        ([" mach", "te", ",", " weil", "</s>"], [[0, 1], [2], [3], [4]]),
        ([" eigh", "ty", "-", "two", "</s>"], [[0, 1, 2, 3], [4]]),
        ([" (", "Hun", "d", ")", "."], [[0], [1, 2], [3], [4]]),
        (["<s>", " ", "X", "?!"], [[0], [1, 2], [3]]),
        ([" ..", "."], [[0], [1]]),
        ([], []),
    ],
)
def test_words(pieces: list[str], expected: list[list[int]]) -> None:
    assert words(pieces) == expected


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        ([" A", " man", ",", " sle", "eps", "."], "A man , sleeps .", [[0], [1], [2], [3, 4], [5]]),
        ([" a", " ,", " b"], "a,b", [[0, 1, 2]]),
        ([" ", "don", " '", " t", " (", " b"], "Don't ( b", [[0, 1, 2, 3], [4], [5]]),
        ([" ﬁ", "ne"], "fine", [[0, 1]]),
        ([" a", " <unk>"], "a ☃", [[0], [1]]),  # not the same letters, but as many words
        ([" a", " <unk>", ","], "a ☃ ,", None),
        ([" New York", " is"], "New York is", None),
        ([" a"], "a \u200b", None),
    ],
)
def test_pieces_of_what_blanks_separate(
    pieces: list[str], text: str, expected: list[list[int]] | None
) -> None:
    assert pieces_of_words(pieces, text) == expected


def test_labels_mark_what_goes_on_inside_a_word() -> None:
    assert labels([" mach", "te", ",", " ", "weil", "\x1b"]) == [
        "mach", "·te", ",", "␣", "·weil", "·\\x1b",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["The dog opened it.", "  a  b ", "한국어 문장.", "</s> <s>"])
def test_nothing_is_lost(model: Model, text: str) -> None:
    ids = [BOS, *model.tokenizer.encode([text])[0], EOS]
    pieces = model.tokenizer.names(ids, "target")
    assert (pieces[0], pieces[-1]) == ("<s>", "</s>")
    if text.isascii():
        assert "".join(pieces[1:-1]) == " " + text
    groups = words(pieces)
    assert [place for group in groups for place in group] == list(range(len(ids)))
    shown = word_labels(model.tokenizer, ids, "target", groups)
    if text.isascii() and "<" not in text:
        assert "".join(shown[1:-1]).replace("␣", "") == text.replace(" ", "")
    if not text.isascii():
        assert shown[1:-1] == ["한국어", "문장", "."]  # although no piece is a whole syllable


def test_merged_by_hand() -> None:
    weights = np.array([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6], [0.2, 0.0, 0.8]], np.float32)
    found = merged(weights, [[0, 1], [2]], [[0], [1, 2]])
    np.testing.assert_allclose(found, [[0.3, 0.7], [0.2, 0.8]], rtol=1e-6)
    assert np.array_equal(merged(weights, [[0], [1], [2]], [[0], [1], [2]]), weights)
