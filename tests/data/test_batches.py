import itertools
import json
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batches import Batch, Batches
from regard.data.rows import Places, Rows
from regard.errors import DataError, TrainingError
from regard.recipe import DataRecipe

BOS, EOS = 1, 2
LAYOUTS = ["grouped", "packed"]
# Without a deadline: the first example takes the time of the imports.
unhurried = settings(deadline=None, max_examples=60)


class Corpus:
    """Pairs of given lengths; only </s> occurs twice, so a sentence identifies its pair."""

    def __init__(self, lengths):
        self.source_lengths, self.target_lengths = np.array(lengths, np.int32).reshape(-1, 2).T
        pieces = itertools.count(3)
        self.sources, self.targets = (
            [[*itertools.islice(pieces, int(n) - 1), EOS] for n in side]
            for side in (self.source_lengths, self.target_lengths)
        )

    def __len__(self):
        return len(self.sources)

    def source(self, i):
        return np.array(self.sources[i], np.uint32)

    def target(self, i):
        return np.array(self.targets[i], np.uint32)

    def pairs(self):
        return sorted(zip(self.sources, self.targets, strict=True))


def sentences(ids, segments):
    """{(row, segment): ids}, from the definition of segments."""
    return {
        (r, k): row[segment == k].tolist()
        for r, (row, segment) in enumerate(zip(ids, segments, strict=True))
        for k in range(1, int(segment.max(initial=0)) + 1)
    }


def pairs_of(batch: Batch):
    """The (source, target) sentences of a batch, found by its segments."""
    source = sentences(batch.source.ids.numpy(), batch.source.segments.numpy())
    target = sentences(batch.labels.numpy(), batch.target.segments.numpy())
    assert source.keys() == target.keys()  # the same pairs in the same rows
    return [(source[key], target[key]) for key in source]


def an_epoch(batches: Batches):
    start, taken = batches.epoch, []
    while batches.epoch < start + 1:
        taken += batches.take(1)
        assert len(taken) < 9973  # it stops before the limit
    assert batches.epoch == start + 1
    return taken


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, int):
        return a == b
    return len(a) == len(b) and all(map(equal, a, b))


def windows_of(pairs):
    return mock.patch("regard.data.batches.WINDOW_PAIRS", pairs)


def corpora(longest=23):
    length = st.integers(1, longest)
    return st.lists(st.tuples(length, length), min_size=1, max_size=61).map(Corpus)


recipes = st.builds(
    DataRecipe,
    source_tokens=st.integers(24, 211),
    target_tokens=st.integers(24, 211),
    row_length=st.just(24),
)
layouts = st.sampled_from(LAYOUTS)
seeds = st.integers(0, 2**63 - 1)
windows = st.sampled_from([5, 17, 2**19])


def test_a_batch_that_does_not_fit_the_memory_names_the_fields_to_lower() -> None:
    recipe = DataRecipe(source_tokens=9_000_000, target_tokens=9_000_000)
    batches = Batches(Corpus([[3, 4]]), recipe, 1, layout="packed")
    with (
        mock.patch.object(Places, "filled", side_effect=MemoryError),
        pytest.raises(DataError, match=r"9,000,000 source .* lower data\.source_tokens"),
    ):
        batches.take(1)


@unhurried
@given(corpora(), recipes, seeds, layouts, windows)
def test_each_pair_comes_once_an_epoch(corpus, recipe, seed, layout, window):
    with windows_of(window):
        batches = Batches(corpus, recipe, seed, layout=layout)
        for _ in range(2):
            taken = [pair for batch in an_epoch(batches) for pair in pairs_of(batch)]
            assert sorted(taken) == corpus.pairs()


@unhurried
@given(corpora(), recipes, seeds, layouts)
def test_segments_and_positions_number_sentences_and_their_tokens(corpus, recipe, seed, layout):
    for batch in an_epoch(Batches(corpus, recipe, seed, layout=layout)):
        for side in (batch.source, batch.target):
            for segments, positions in zip(side.segments, side.positions, strict=True):
                runs = [(k, len([*run])) for k, run in itertools.groupby(segments.tolist())]
                padding = runs.pop()[1] if runs[-1][0] == 0 else 0
                assert [k for k, _ in runs] == [*range(1, len(runs) + 1)]
                counted = [p for _, length in runs for p in range(length)]
                assert positions.tolist() == counted + [0] * padding


@unhurried
@given(corpora(), recipes, seeds, layouts)
def test_padding_is_zero_and_tokens_are_counted(corpus, recipe, seed, layout):
    for batch in an_epoch(Batches(corpus, recipe, seed, layout=layout)):
        source, target = batch.source, batch.target
        assert torch.equal(source.ids != 0, source.segments != 0)
        assert torch.equal(target.ids != 0, target.segments != 0)
        assert torch.equal(batch.labels != 0, target.segments != 0)
        assert batch.source_tokens == source.ids.count_nonzero()
        assert batch.target_tokens == batch.labels.count_nonzero()
        assert batch.slots == source.ids.numel() + target.ids.numel()


@unhurried
@given(corpora(), recipes, seeds, layouts)
def test_decoder_reads_the_labels_shifted_right(corpus, recipe, seed, layout):
    for batch in an_epoch(Batches(corpus, recipe, seed, layout=layout)):
        segments = batch.target.segments.numpy()
        labels = sentences(batch.labels.numpy(), segments)
        read = sentences(batch.target.ids.numpy(), segments)
        assert read == {key: [BOS, *ids[:-1]] for key, ids in labels.items()}


@unhurried
@given(corpora(), recipes, seeds)
def test_grouped_batches_keep_to_their_limits(corpus, recipe, seed):
    for batch in an_epoch(Batches(corpus, recipe, seed, layout="grouped")):
        assert batch.source.ids.numel() <= recipe.source_tokens
        assert batch.target.ids.numel() <= recipe.target_tokens


@unhurried
@given(corpora(), recipes, seeds)
def test_packed_batches_have_one_shape(corpus, recipe, seed):
    rows = min(recipe.source_tokens, recipe.target_tokens) // 24
    for batch in an_epoch(Batches(corpus, recipe, seed, layout="packed")):
        assert batch.source.ids.shape == batch.target.ids.shape == batch.labels.shape == (rows, 24)


@unhurried
@given(corpora(), recipes, seeds, layouts)
def test_halves_are_the_rows_of_a_batch_without_columns_of_padding(corpus, recipe, seed, layout):
    for batch in Batches(corpus, recipe, seed, layout=layout).take(3):
        halves = batch.halves()
        assert [len(half.labels) for half in halves] == [
            len(batch.labels) // 2,
            -(-len(batch.labels) // 2),
        ]
        assert [pair for half in halves for pair in pairs_of(half)] == pairs_of(batch)
        for half in halves:
            for rows, tokens in (
                (half.source, half.source_tokens),
                (half.target, half.target_tokens),
            ):
                assert tokens == (rows.segments != 0).sum()
                assert (rows.segments != 0).any(0).all() or rows.ids.shape[1] == 1
            assert half.labels.shape == half.target.ids.shape


@unhurried
@given(corpora(), recipes, seeds, layouts, windows, st.integers(0, 3))
def test_the_rest_of_an_epoch_ends_with_it(corpus, recipe, seed, layout, window, taken):
    with windows_of(window):
        batches = Batches(corpus, recipe, seed, layout=layout)
        seen = batches.take(taken) if taken < batches.batches_per_epoch else []
        seen += batches.rest_of_epoch()
        assert batches.epoch == 1
        assert sum(len(pairs_of(batch)) for batch in seen) == len(corpus)
        assert not list(batches.rest_of_epoch())


@unhurried
@given(corpora(), recipes, seeds, layouts, windows, st.integers(0, 29))
def test_restored_position_goes_on_with_the_same_batches(
    corpus, recipe, seed, layout, window, taken
):
    with windows_of(window):
        batches = Batches(corpus, recipe, seed, layout=layout)
        batches.take(taken)
        state, epoch = json.loads(json.dumps(batches.state())), batches.epoch
        restored = Batches(corpus, recipe, seed, layout=layout)
        restored.restore(state)
        assert restored.epoch == epoch
        assert equal(restored.take(7), batches.take(7))


def test_restoring_goes_back_too():
    batches = Batches(mixed_corpus(61), DataRecipe(source_tokens=97), 3, layout="grouped")
    start = batches.state()
    first = batches.take(2 * batches.batches_per_epoch + 3)
    batches.restore(start)
    assert equal(batches.take(len(first)), first)


def mixed_corpus(pairs, longest=29):
    random = np.random.default_rng(pairs)
    source = np.clip(random.lognormal(2.3, 0.45, pairs), 1, longest)
    target = np.clip(source * random.normal(1.05, 0.15, pairs), 1, longest)
    return Corpus(np.stack([source, target], 1).astype(int))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_epochs_and_seeds_differ_in_order_and_in_company(layout):
    corpus, recipe = mixed_corpus(211), DataRecipe(source_tokens=256, target_tokens=256)
    batches = Batches(corpus, recipe, 5, layout=layout)
    first, second = an_epoch(batches), an_epoch(batches)
    other = an_epoch(Batches(corpus, recipe, 6, layout=layout))
    again = an_epoch(Batches(corpus, recipe, 5, layout=layout))
    assert equal(first, again)
    for reordered in (second, other):
        together = [
            {frozenset(s[0] for s, _ in pairs_of(b)) for b in x} for x in (first, reordered)
        ]
        assert len(together[0] & together[1]) < len(first) / 2


def test_short_and_long_sentences_come_in_random_order():
    recipe = DataRecipe(source_tokens=128, target_tokens=128)
    taken = an_epoch(Batches(mixed_corpus(211), recipe, 5, layout="grouped"))
    widths = [batch.source.ids.shape[1] for batch in taken]
    rises = sum(a < b for a, b in itertools.pairwise(widths))
    assert len(widths) / 4 < rises < len(widths) * 3 / 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batches_per_epoch_is_exact_within_one_window(layout):
    batches = Batches(mixed_corpus(211), DataRecipe(source_tokens=512), 5, layout=layout)
    assert batches.batches_per_epoch == len(an_epoch(batches))


def test_epoch_counts_with_each_batch():
    batches = Batches(Corpus([(7, 7)] * 5), DataRecipe(source_tokens=7), 1, layout="grouped")
    seen = [batches.epoch]
    for _ in range(6):
        batches.take(1)
        seen.append(batches.epoch)
    assert seen == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2])


def test_short_windows_hold_any_pair():
    corpus = Corpus([(7, 7)] * 211)
    with windows_of(53):
        batches = Batches(corpus, DataRecipe(source_tokens=7), 1, layout="grouped")
        firsts = [
            {corpus.sources.index(s) for b in batches.take(53) for s, _ in pairs_of(b)}
            for _ in range(2)
        ]
    assert all(window != set(range(53)) for window in firsts)
    assert not firsts[0] & firsts[1]


def test_no_pairs_are_refused():
    with pytest.raises(DataError, match="no sentence pairs"):
        Batches(Corpus([]), DataRecipe(), 1, layout="grouped")


@pytest.mark.parametrize(
    ("layout", "sizes", "message"),
    [
        (
            "grouped",
            {"source_tokens": 30},
            r"2 of 3 pairs do not fit a batch: pair 2 has 31 source tokens, </s> included, and "
            r"data.source_tokens = 30: raise it to 40, or .* data.max_length = 30",
        ),
        ("grouped", {"target_tokens": 40}, r"1 of 3 pairs .* pair 3 has 41 target tokens"),
        ("packed", {"row_length": 32}, r"1 of 3 .* pair 3 has 37 source .* data.row_length = 32"),
        (
            "packed",
            {"row_length": 64, "target_tokens": 63},
            r"data.target_tokens = 63 holds no row of data.row_length = 64",
        ),
    ],
)
def test_what_fits_no_batch_is_refused(layout, sizes, message):
    with pytest.raises(TrainingError, match=message):
        Batches(Corpus([(7, 7), (31, 5), (37, 41)]), DataRecipe(**sizes), 1, layout=layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lengths_at_the_limit_fit(layout):
    recipe = DataRecipe(source_tokens=24, target_tokens=24, row_length=24)
    (batch,) = Batches(Corpus([(24, 24)]), recipe, 1, layout=layout).take(1)
    assert batch.slots == 48


@pytest.mark.parametrize(
    ("named", "change"),
    [
        ("pairs", {"corpus": Corpus([(7, 7)] * 13)}),
        ("seed", {"seed": 2}),
        ("source_tokens", {"recipe": DataRecipe(source_tokens=257)}),
        ("target_tokens", {"recipe": DataRecipe(source_tokens=256, target_tokens=511)}),
        ("row_length", {"layout": "packed"}),
        ("pairs_in_a_row", {"join": False}),
    ],
)
def test_position_of_other_batches_is_refused(named, change):
    given = {
        "corpus": Corpus([(7, 7)] * 11),
        "recipe": DataRecipe(source_tokens=256),
        "seed": 1,
        "layout": "grouped",
    }

    def batches(corpus, recipe, seed, **options):
        return Batches(corpus, recipe, seed, **options)

    state = batches(**given).state()
    with pytest.raises(TrainingError, match=f"{named} = .* resume with the same"):
        batches(**(given | change)).restore(state)


def test_batch_moves_whole():
    (batch,) = Batches(Corpus([(5, 7)]), DataRecipe(), 1, layout="grouped").take(1)
    moved = batch.to("meta")
    assert all(tensor.is_meta for tensor in (*moved.source, *moved.target, moved.labels))
    assert isinstance(moved.source, Rows)
    assert moved.slots == batch.slots
    assert (moved.source_tokens, moved.target_tokens) == (5, 7)


@pytest.mark.gpu
def test_batch_comes_back_from_a_gpu_unchanged():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    (batch,) = Batches(mixed_corpus(211), DataRecipe(), 1, layout="packed").take(1)
    assert equal(batch.to("cuda").to("cpu"), batch)
