"""The first embedding of a run: what occurs in the same pairs is near."""

import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from regard.families.choose import new_model
from regard.recipe import Recipe
from regard.run.first_embedding import SHARED, Occurrences, begin_with_pairs, vectors_of_pairs
from regard.run.model_directory import open_model
from regard.text.tokenizer import EOS
from run.copying import RECIPE, prepared, trained

FIRST, WORDS = EOS + 1, 40
"""The id of the first word, and the number of words; word i means the word WORDS + i."""
LIKE_PAIRS = RECIPE.but(first_embedding="pairs")


class Listed(NamedTuple):
    """Pairs of sentences that lie in two lists."""

    sources: list[list[int]]
    targets: list[list[int]]

    @property
    def source_lengths(self) -> NDArray[Any]:
        return np.array(list(map(len, self.sources)))

    @property
    def target_lengths(self) -> NDArray[Any]:
        return np.array(list(map(len, self.targets)))

    def __len__(self) -> int:
        return len(self.sources)

    def source(self, i: int, /) -> NDArray[Any]:
        return np.array(self.sources[i], np.uint16)

    def target(self, i: int, /) -> NDArray[Any]:
        return np.array(self.targets[i], np.uint16)


def reversed_pairs(count: int, shift: int = WORDS) -> Listed:
    """Sentences of random words, and the reversed sentences of the words that they mean."""
    draw = random.Random(1)
    words = [[draw.randrange(WORDS) for _ in range(draw.randint(2, 9))] for _ in range(count)]
    sources = [[FIRST + word for word in sentence] + [EOS] for sentence in words]
    targets = [[FIRST + shift + word for word in sentence[::-1]] + [EOS] for sentence in words]
    return Listed(sources, targets)


@pytest.mark.parametrize("embeddings", ["shared", "target", "apart"])
@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_words_are_near_their_translations(family: str, embeddings: str) -> None:
    one = embeddings == "shared"
    size = FIRST + WORDS * (1 + one)
    recipe = Recipe().but(family=family, layers=2, d_model=128, embeddings=embeddings)
    torch.manual_seed(3)
    model = new_model(recipe.model, size, size)
    source, target = model.embedding.tokens.weight.data, model.target_side.tokens.weight.data
    before = source.clone(), target.clone()
    global_state = torch.get_rng_state()
    begin_with_pairs(model, reversed_pairs(400, WORDS if one else 0), seed=1)
    assert torch.equal(torch.get_rng_state(), global_state)
    words = source[FIRST : FIRST + WORDS]
    meanings = target[FIRST + WORDS * one :]
    nearest = (torch.nn.functional.normalize(words) @ meanings.mT).argmax(dim=1)
    assert (nearest == torch.arange(WORDS)).float().mean() > 0.9
    for rows, old in zip((source, target), before, strict=True):
        torch.testing.assert_close(rows.norm(dim=1), old.norm(dim=1))
        assert torch.equal(rows[:FIRST], old[:FIRST])  # <pad>, <s> and </s> tell nothing


def test_one_matrix_counts_what_is_on_both_sides_once_and_is_turned_once() -> None:
    """Source and target have the same ids, as names and punctuation have."""
    recipe = Recipe().but(layers=1, d_model=256, heads=2)
    torch.manual_seed(3)
    model = new_model(recipe.model, FIRST + WORDS)
    before = model.embedding.tokens.weight.data.clone()
    begin_with_pairs(model, reversed_pairs(400, 0), seed=1)
    after = model.embedding.tokens.weight.data[FIRST:]
    cosines = torch.cosine_similarity(after, before[FIRST:])
    assert cosines.mean() == pytest.approx((1 - SHARED**2) ** 0.5, abs=0.05)


def test_vocabularies_of_two_sizes_have_matrices_of_two_sizes() -> None:
    recipe = Recipe().but(layers=1, d_model=128, heads=2, embeddings="apart")
    model = new_model(recipe.model, FIRST + WORDS, FIRST + WORDS + 7)
    begin_with_pairs(model, reversed_pairs(400, 0), seed=1)
    words, meanings = (
        torch.nn.functional.normalize(embedding.tokens.weight.data[FIRST : FIRST + WORDS])
        for embedding in (model.embedding, model.target_side)
    )
    assert ((words @ meanings.mT).argmax(dim=1) == torch.arange(WORDS)).float().mean() > 0.9


def test_the_callers_default_type_does_not_matter() -> None:
    occurrences = Occurrences.of(reversed_pairs(100), FIRST + 2 * WORDS, 0)
    expected = vectors_of_pairs(occurrences, 16, seed=1)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(vectors_of_pairs(occurrences, 16, seed=1), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_angles_are_those_of_the_singular_vectors_of_the_whole_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("regard.run.first_embedding.ITERATIONS", 200)
    pairs, width = reversed_pairs(60), 12
    occurrences = Occurrences.of(pairs, FIRST + 2 * WORDS, 0)
    matrix = torch.zeros(FIRST + 2 * WORDS, len(pairs), dtype=torch.float64)
    matrix[occurrences.entries, occurrences.pairs] = occurrences.weights().double()
    left, values, _ = torch.linalg.svd(matrix, full_matrices=False)
    expected = torch.nn.functional.normalize(left[:, 1 : width + 1] * values[1 : width + 1].sqrt())
    found = vectors_of_pairs(occurrences, width, seed=7).double()
    expected *= found.any(dim=1, keepdim=True)
    assert found.any(dim=1).sum() == 2 * WORDS
    torch.testing.assert_close(found @ found.mT, expected @ expected.mT, rtol=0, atol=1e-3)


def test_a_row_of_the_matrix_tells_rarity_and_length() -> None:
    pairs = Listed([[3, 3, EOS], [3, 4, EOS], [5, EOS], [5, EOS]], [[6, EOS]] * 2 + [[7, EOS]] * 2)
    occurrences = Occurrences.of(pairs, 8, 0)
    assert occurrences.entry_counts.tolist() == [0, 0, 4, 2, 1, 2, 2, 2]
    assert occurrences.pair_counts.tolist() == [3, 4, 3, 3]
    weights = dict(
        zip(
            zip(occurrences.entries.tolist(), occurrences.pairs.tolist(), strict=True),
            occurrences.weights().tolist(),
            strict=True,
        )
    )
    assert [weights[EOS, pair] for pair in range(4)] == [0] * 4  # it is in every pair
    assert weights[4, 1] == 0  # once is too seldom
    assert weights[3, 0] / weights[3, 1] == pytest.approx((4 / 3) ** 0.5)
    assert weights[5, 2] ** 2 + weights[5, 3] ** 2 == pytest.approx(2**0.5)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_pairs_leave_finite_numbers(count: int) -> None:
    model = new_model(RECIPE.model, FIRST + 2 * WORDS)
    begin_with_pairs(model, reversed_pairs(count), seed=1)
    assert model.embedding.tokens.weight.isfinite().all()


def test_of_a_long_text_pairs_are_read_from_beginning_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("regard.run.first_embedding.MOST_PAIRS", 3)
    pairs = Listed([[FIRST + i, EOS] for i in range(7)], [[EOS]] * 7)
    counts = Occurrences.of(pairs, FIRST + 7, 0).entry_counts
    assert counts[FIRST:].tolist() == [1, 0, 1, 0, 1, 0, 0]


def test_only_a_new_run_begins_so_and_goes_on_as_if_it_had_not_been_stopped(
    tmp_path: Path,
) -> None:
    data = prepared(tmp_path)
    random_start = trained(tmp_path / "random", data, RECIPE)
    straight = trained(tmp_path / "straight", data, LIKE_PAIRS)
    trained(tmp_path / "resumed", data, LIKE_PAIRS.but(steps=4), accept_changes=True)
    resumed = trained(tmp_path / "resumed", data, LIKE_PAIRS, accept_changes=True)
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)
    name = "embedding.tokens.weight"
    assert not torch.equal(straight[name], random_start[name])
    kept = open_model(tmp_path / "straight").recipe
    assert kept.training.first_embedding == "pairs"
