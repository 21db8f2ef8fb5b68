from pathlib import Path

import numpy as np
import pytest

from regard.data import repeats
from regard.data.repeats import NO_DIGEST, digest, mark_repeats, read_marks


def marked(folder: Path, digests: list[int]) -> list[bool]:
    (folder / "digests").write_bytes(np.array(digests, np.uint64).tobytes())
    return read_marks(mark_repeats(folder / "digests"), 0, len(digests)).tolist()


@pytest.mark.parametrize("part", [1, 7, 1000])
def test_repeats_agree_with_a_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(repeats, "_PART", part)
    monkeypatch.setattr(repeats, "_READ", 13)
    random = np.random.default_rng(5)
    pairs = [(f"a{i}", f"b{i % 3}") for i in random.integers(0, 40, 101)]
    expected = [pair in pairs[:i] for i, pair in enumerate(pairs)]
    assert 0 < sum(expected) < 101
    assert marked(tmp_path, [digest(pair) for pair in pairs]) == expected


def test_a_pair_without_digest_is_not_a_repeat(tmp_path: Path) -> None:
    assert marked(tmp_path, [NO_DIGEST, 5, NO_DIGEST, 5, NO_DIGEST]) == [0, 0, 0, 1, 0]


def test_marks_are_read_from_anywhere(tmp_path: Path) -> None:
    digests = [1, 2, 1, 3, 3, 3, 4, 5, 6, 2, 1, 7, 8, 9, 9, 10, 10]
    expected = marked(tmp_path, digests)
    for first in range(len(digests)):
        for count in range(len(digests) - first + 1):
            found = read_marks(tmp_path / "repeats", first, count).tolist()
            assert found == expected[first : first + count]


def test_the_side_of_a_word_counts() -> None:
    assert len({digest(pair) for pair in [("a", "b"), ("b", "a"), ("ab", ""), ("", "ab")]}) == 4
