"""BPE-dropout: the text stays, its sub-words are drawn anew in each epoch, and come back."""

import random
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.corpus.corpus import examples
from regard.data.batches import BatchShare
from regard.data.prefetch import Prefetched
from regard.data.prepare import prepare_text
from regard.data.subword_dropout import Merges
from regard.data.training_data import training_batches, training_pairs
from regard.errors import TrainingError
from regard.recipe import Recipe
from regard.text.tokenizer import EOS, Tokenizer

RECIPE = Recipe().but(vocabulary=500, held_out=5, max_length=48, row_length=48, seed=3)
RECIPE = RECIPE.but(source_tokens=960, target_tokens=960, subword_dropout=0.2)
LINES = [example.source for example in islice(examples(1), 400)]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.en"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def data(text: Path) -> Path:
    prepare_text([text], [text], text.parent / "data", RECIPE)
    return text.parent / "data"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.learn(LINES, "bpe", 500)


def drawn(tokenizer: Tokenizer, lines: Sequence[str], skipped: float, **given: int) -> list[Any]:
    """The ids of each line, with merges skipped."""
    rows = [np.append(ids, EOS) for ids in tokenizer.encode_arrays(lines)]
    together = np.concatenate(rows), np.append(0, np.cumsum([len(row) for row in rows]))
    rules = {"seed": 1, "longest": 1000} | given
    ids, starts = Merges(tokenizer).drawn(together, skipped, **rules)
    return [ids[a:b].tolist() for a, b in pairwise(starts)]


@settings(deadline=None)
@given(lines=st.lists(st.text(), min_size=1), skipped=st.floats(0, 0.99), seed=st.integers(0, 99))
def test_the_text_stays(tokenizer: Tokenizer, lines: list[str], skipped: float, seed: int) -> None:
    rows = drawn(tokenizer, lines, skipped, seed=seed)
    assert tokenizer.decode(rows) == lines
    assert all(row.count(EOS) == 1 and row[-1] == EOS for row in rows)


def test_nothing_skipped_is_the_encoding_itself(tokenizer: Tokenizer) -> None:
    assert drawn(tokenizer, LINES, 0.0) == [[*ids, EOS] for ids in tokenizer.encode(LINES)]


def test_runs_of_one_letter_are_merged_from_the_left() -> None:
    runs = [" ".join("a" * n for n in range(1, 9))] * 3
    tokenizer = Tokenizer.learn(["aa"] * 9, "bpe", 260)
    assert len(tokenizer.merges) == 1
    assert drawn(tokenizer, runs, 0.0) == [[*ids, EOS] for ids in tokenizer.encode(runs)]


def plainly(word: list[int], merges: dict[tuple[int, int], tuple[int, int]], skipped: float) -> Any:
    """The algorithm as Provilkov et al. publish it; `merges` maps two ids to a rank and an id."""
    word = list(word)
    while True:
        joins = [
            (merges[two][0], i)
            for i, two in enumerate(pairwise(word))
            if two in merges and random.random() >= skipped
        ]
        if not joins:
            return tuple(word)
        _, i = min(joins)
        word[i : i + 2] = [merges[word[i], word[i + 1]][1]]


def test_sub_words_are_as_frequent_as_in_the_published_algorithm(tokenizer: Tokenizer) -> None:
    ranks = {(a, b): (rank, c) for rank, (a, b, c) in enumerate(tokenizer.merges.tolist())}
    entries = {tokenizer.decode([[i]])[0]: i for i in range(3, 259)} | {" ": tokenizer.space}
    word, times, random_state = max(" ".join(LINES).split(), key=len), 20_000, random.getstate()
    random.seed(5)
    spelled = [tokenizer.space, *(entries[letter] for letter in word)]
    theirs = Counter(plainly(spelled, ranks, 0.3) for _ in range(times))
    random.setstate(random_state)
    ours = Counter(tuple(row[:-1]) for row in drawn(tokenizer, [word] * times, 0.3))
    assert len(ours) > 20
    for cut in ours | theirs:
        p = (ours[cut] + theirs[cut]) / (2 * times)
        assert abs(ours[cut] - theirs[cut]) / times < 5 * (2 * p * (1 - p) / times) ** 0.5


def test_a_sentence_that_becomes_too_long_stays_as_it_was(tokenizer: Tokenizer) -> None:
    plain = [[*ids, EOS] for ids in tokenizer.encode(LINES)]
    longest = max(map(len, plain))
    rows = drawn(tokenizer, LINES, 0.5, longest=longest)
    free = drawn(tokenizer, LINES, 0.5)
    assert any(len(row) > longest for row in free)
    assert rows == [
        own if len(row) > longest else row for row, own in zip(free, plain, strict=True)
    ]


def sentences(batches: Any, n: int) -> list[list[int]]:
    """The source rows of the next n batches, one after the other."""
    return [row.tolist() for batch in batches.take(n) for row in batch.source.ids]


def test_every_epoch_has_its_own_sub_words_of_the_same_text(data: Path) -> None:
    """Each pair is seen once an epoch, since source and target of this corpus are equal text."""
    tokenizer, batches = Tokenizer.load(data / "tokenizer.json"), training_batches(data, RECIPE)
    epochs, texts = [], []
    for _ in range(2):
        rows = [batch.labels for batch in batches.rest_of_epoch()]
        batches.take(1)
        ids = [i for labels in rows for i in labels.flatten().tolist() if i]
        epochs.append(Counter(ids))
        ends = [i for i, one in enumerate(ids) if one == EOS]
        cut = [ids[a + 1 : b] for a, b in zip([-1, *ends], ends, strict=False)]
        texts.append(Counter(tokenizer.decode(cut)))
        batches = training_batches(data, RECIPE)
        batches.restore(batches.state() | {"epoch": 1})
    assert texts[0] == texts[1]
    assert epochs[0] != epochs[1]


def test_sub_words_have_random_numbers_of_their_own_in_each_window(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the pairs and the order of the batches are drawn with others."""
    states, real = list[int](), np.random.PCG64

    def made(seed: np.random.SeedSequence) -> np.random.PCG64:
        states.append(real(seed).state["state"]["state"])
        return real(seed)

    monkeypatch.setattr("regard.data.batches.WINDOW_PAIRS", 150)
    monkeypatch.setattr(np.random, "PCG64", made)
    batches = training_batches(data, RECIPE)
    while batches.epoch < 2:
        batches.take(1)
    assert len(set(states)) == len(states) == 2 * (1 + 2 * 3)  # two epochs of three windows


def test_batches_come_back_after_a_stop_and_in_another_process(data: Path) -> None:
    plain = training_batches(data, RECIPE)
    plain.take(3)
    resumed = training_batches(data, RECIPE)
    resumed.restore(plain.state())
    ahead = Prefetched(resumed, partial(training_batches, data, RECIPE))
    count = 2 * plain.batches_per_epoch
    assert sentences(ahead, count) == sentences(plain, count)
    ahead.close()


def test_processes_share_the_batches_of_one(data: Path) -> None:
    whole = sentences(training_batches(data, RECIPE), 4)
    shared = [training_batches(data, RECIPE, BatchShare(rank, 2, 2)) for rank in (0, 1)]
    assert sorted(whole) == sorted(row for share in shared for row in sentences(share, 4))


@pytest.mark.parametrize(
    ("layout", "source_tokens", "target_tokens"),
    [("packed", 960, 960), ("grouped", 48, 960), ("grouped", 960, 48)],
)
def test_sentences_cut_anew_have_room(
    data: Path, layout: str, source_tokens: int, target_tokens: int
) -> None:
    """Where a row, or a side of a batch, has less room than data.max_length."""
    recipe = RECIPE.but(max_length=96, layout=layout, subword_dropout=0.5)
    recipe = recipe.but(source_tokens=source_tokens, target_tokens=target_tokens)
    for batch in islice(training_batches(data, recipe).rest_of_epoch(), 500):
        assert batch.source.ids.numel() <= source_tokens
        assert batch.labels.numel() <= target_tokens
        assert int((batch.source.ids != 0).sum()) == batch.source_tokens
        assert int((batch.labels != 0).sum()) == batch.target_tokens


def test_sentences_cut_anew_are_no_longer_than_any_may_be(data: Path) -> None:
    """Though a row has room for twice as many pieces."""
    pairs = training_pairs(data, RECIPE)
    longest = int(max(pairs.source_lengths.max(), pairs.target_lengths.max()))
    recipe = RECIPE.but(max_length=longest, row_length=2 * longest, subword_dropout=0.5)
    found = [int(b.source.positions.max()) for b in training_batches(data, recipe).rest_of_epoch()]
    assert max(found) == longest - 1


def test_without_it_batches_are_what_they_were(data: Path) -> None:
    plain = RECIPE.but(subword_dropout=0.0)
    pairs = training_pairs(data, plain)
    known = {tuple(pairs.target(i).tolist()) for i in range(len(pairs))}
    for batch in training_batches(data, plain).rest_of_epoch():
        for labels, segments in zip(batch.labels, batch.target.segments, strict=True):
            for k in range(1, int(segments.max()) + 1):
                assert tuple(labels[segments == k].tolist()) in known


def test_word_pieces_are_refused(text: Path, tmp_path: Path) -> None:
    recipe = RECIPE.but(kind="wordpiece", vocabulary=600)
    prepare_text([text], [text], tmp_path / "data", recipe)
    with pytest.raises(TrainingError, match=r"^data.subword_dropout skips merges .* set it to 0$"):
        training_batches(tmp_path / "data", recipe)


def test_a_machine_without_numba_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.learn(LINES, "bpe", 500)
    monkeypatch.setitem(sys.modules, "regard.data.merging", None)  # as an import that fails
    with pytest.raises(TrainingError, match="subword_dropout needs Numba"):
        Merges(tokenizer)
