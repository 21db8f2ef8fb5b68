"""The choice of a recipe for a text, a machine and a time."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard import prepare
from regard.amounts import seconds_in
from regard.budget.choice import FILLED, Choice, Speed, choose, for_several_times
from regard.budget.loss import expected_loss, weights_of
from regard.budget.speed import tokens_per_second
from regard.budget.text import ParallelText, rule_of_times
from regard.errors import DataError, RecipeError, RegardError, TrainingError
from regard.families.choose import new_model
from regard.inputs import TrainingFiles
from regard.paper import parameters
from regard.presets import SMALL
from regard.recipe import Recipe
from regard.text.foreign import MosesTokenizer
from regard.text.opening import open_tokenizer

SMALL_TEXT = ParallelText(29_000, 2_000_000, ((60, 70),) * 100)
LARGE_TEXT = ParallelText(4_500_000, 600_000_000, ((130, 140),) * 100)

TINY = Recipe().but(
    layers=1, d_model=16, d_ff=32, heads=2, vocabulary=300, max_length=64, row_length=64,
    source_tokens=512, target_tokens=512,
)  # fmt: skip


def slow(recipe: Recipe, _: ParallelText) -> float:
    """The speed of a machine of 100 GFLOP/s, in target tokens."""
    return 1e11 / (12 * parameters(recipe.model, recipe.tokenizer.vocabulary))


def fast(recipe: Recipe, corpus: ParallelText) -> float:
    return 1000 * slow(recipe, corpus)


@pytest.mark.parametrize("corpus", [SMALL_TEXT, LARGE_TEXT])
@pytest.mark.parametrize("measure", [slow, fast])
def test_more_time_never_gives_a_smaller_model_or_a_worse_loss(
    corpus: ParallelText, measure: Speed
) -> None:
    found = [choose(corpus, minutes, measure) for minutes in (1, 10, 60, 480, 4320, 40_000)]
    for less, more in pairwise(found):
        assert size(less) <= size(more)
        if more.recipe.training.label_smoothing == less.recipe.training.label_smoothing:
            assert more.loss <= less.loss
            if more.recipe.tokenizer == less.recipe.tokenizer:
                assert more.perplexity <= less.perplexity
        assert more.recipe.model.dropout >= less.recipe.model.dropout
        assert more.recipe.training.label_smoothing >= less.recipe.training.label_smoothing


def size(choice: Choice) -> int:
    return parameters(choice.recipe.model, 2)


def test_a_fast_machine_and_a_large_text_give_a_large_model() -> None:
    assert choose(SMALL_TEXT, 10, slow).recipe.model.d_model == 128
    assert choose(LARGE_TEXT, 3 * 1440, fast).recipe.model.d_model >= 512
    assert choose(LARGE_TEXT, 3 * 1440, fast).recipe.tokenizer.vocabulary == 36_400


def test_passes_beyond_a_number_do_not_ask_for_a_larger_model() -> None:
    """A small text keeps the smallest model, in however much time."""
    assert choose(SMALL_TEXT, 30 * 1440, fast).recipe.model.d_model == 128
    assert choose(LARGE_TEXT, 30 * 1440, fast).recipe.model.d_model > 128


@given(st.integers(1, 10**8), st.integers(1, 500), st.integers(1, 500), st.floats(0.02, 1e5))
def test_every_choice_is_a_recipe_that_can_end(
    pairs: int, source: int, target: int, minutes: float
) -> None:
    corpus = ParallelText(pairs, pairs * target, ((source, target),) * min(pairs, 50))
    training = choose(corpus, minutes, slow).recipe.training
    assert training.minutes == minutes
    assert 20 <= training.warmup_steps <= 4000
    assert 0 < training.rate <= 2.8
    assert training.save_every <= training.steps
    assert training.validate_every <= training.steps


@pytest.mark.parametrize(
    ("passes", "few", "usual"), [(10, 0.1, 0.1), (20, 0.2, 0.1), (45, 0.3, 0.2)]
)
def test_many_passes_over_few_tokens_ask_for_more_dropout(
    passes: int, few: float, usual: float
) -> None:
    small = ParallelText(10_000, 360_000, ((33, 36),) * 100)
    for text, dropout in ((small, few), (SMALL_TEXT, usual)):
        chosen = choose(text, 10, lambda *_, text=text: passes * text.tokens / 540)
        assert chosen.epochs == pytest.approx(passes, rel=0.01)
        assert chosen.recipe.model.dropout == dropout


def test_the_speed_is_that_of_the_batches_which_are_trained_on() -> None:
    def constant(recipe: Recipe, _: ParallelText) -> float:
        tokens = recipe.data.target_tokens
        return tokens / (0.1 + 1e-4 * tokens)  # each step also takes 0.1 s for the optimizer

    halved, whole = choose(SMALL_TEXT, 10, constant), choose(SMALL_TEXT, 480, constant)
    assert halved.recipe.data.target_tokens == whole.recipe.data.target_tokens // 2
    for found in halved, whole:
        assert found.tokens_per_second == pytest.approx(constant(found.recipe, SMALL_TEXT))


def test_what_is_asked_for_is_kept() -> None:
    found = choose(SMALL_TEXT, 60, slow, ("model.dropout=0.45", "training.steps=9"))
    assert (found.recipe.model.dropout, found.recipe.training.steps) == (0.45, 9)


def test_the_steps_that_are_asked_for_make_the_schedule_and_the_announcement() -> None:
    usual = choose(SMALL_TEXT, 60, slow)
    assert usual.sentences()[0].startswith(f"the run takes 1 h, about {usual.steps:,} steps: this")
    found = choose(SMALL_TEXT, 60, slow, ("training.steps=600",))
    training = found.recipe.training
    assert (found.steps, training.steps, training.warmup_steps) == (600, 600, 100)
    assert (training.save_every, training.validate_every) == (20, 100)
    assert found.sentences()[0].startswith("the run takes 600 steps, about ")
    assert found.epochs < usual.epochs
    assert found.loss > usual.loss
    more = choose(SMALL_TEXT, 60, slow, ("training.steps=1000000",))
    assert more.sentences() == usual.sentences()
    assert more.recipe.training == usual.recipe.training.model_copy(update={"steps": 1_000_000})


def test_only_a_text_that_is_read_few_times_has_a_cooldown() -> None:
    few, many = choose(SMALL_TEXT, 10, slow), choose(SMALL_TEXT, 480, slow)
    assert few.epochs < 12 < many.epochs
    assert (few.recipe.training.cooldown, many.recipe.training.cooldown) == (0.33, 0.0)
    assert "; over the last 33% of the steps, the learning rate falls to 0" in few.sentences()[1]
    assert "learning rate" not in " ".join(many.sentences())
    none = choose(SMALL_TEXT, 10, slow, ("training.cooldown=0",))
    assert none.recipe.training.cooldown == 0
    averaged = [one.recipe.training.average for one in (few, many, none)]
    assert averaged == [1, 9, 9]


@pytest.mark.parametrize(("passes", "share"), [(0.001, 0.022), (0.1, 0.2), (0.24, 0.48), (1, 1.0)])
def test_a_part_of_a_text_is_drawn_if_the_time_is_too_short_for_the_whole(
    passes: float, share: float
) -> None:
    def speed(*_: object) -> float:
        return passes * LARGE_TEXT.tokens / 540

    found = choose(LARGE_TEXT, 10, speed)
    assert found.recipe.data.share == share
    assert ("drawn at random" in found.sentences()[0]) == (share < 1)
    asked = choose(LARGE_TEXT, 10, speed, ("data.share=1",))
    assert asked.recipe == found.recipe.but(share=1.0)
    assert found.epochs == pytest.approx(asked.epochs / share, rel=0.2)


def test_a_text_of_a_hundred_thousand_pairs_is_taken_whole_in_any_time() -> None:
    assert choose(SMALL_TEXT, 0.1, slow).recipe.data.share == 1
    fewer = LARGE_TEXT.drawn(1 / 45)
    assert fewer.pairs == 100_000
    assert choose(fewer, 0.1, slow).recipe.data.share == 1


@pytest.mark.parametrize(
    ("steps", "saved", "validated"),
    [(1, 1, 1), (4, 1, 4), (90, 3, 15), (900, 30, 120), (2970, 99, 198), (3000, 100, 100)],
)
def test_a_short_run_validates_only_some_of_its_checkpoints(
    steps: int, saved: int, validated: int
) -> None:
    """Validations that were one or two steps apart took most of the time."""
    training = choose(LARGE_TEXT, 30 * 1440, fast, (f"training.steps={steps}",)).recipe.training
    assert (training.save_every, training.validate_every) == (saved, validated)


def test_without_a_limit_of_time_the_expected_steps_are_made() -> None:
    usual, asked = choose(SMALL_TEXT, 60, slow), ("training.minutes=0",)
    found = choose(SMALL_TEXT, 60, slow, asked)
    assert (found.recipe.training.minutes, found.recipe.training.steps) == (0, usual.steps)
    said = f"the run has no limit of time and takes {usual.steps:,} steps, about 1 h: this machine"
    assert found.sentences()[0].startswith(said)
    assert found.sentences()[1:] == usual.sentences()[1:]
    longer = choose(SMALL_TEXT, 60, slow, (*asked, "training.steps=1000000"))
    assert longer.steps == longer.recipe.training.steps == 1_000_000
    assert longer.epochs > usual.epochs


@pytest.mark.parametrize(("asked", "keep"), [({"average": 9}, 9), ({"average": 8, "keep": 12}, 12)])
def test_checkpoints_are_averaged_and_kept_as_asked(asked: dict[str, int], keep: int) -> None:
    """The chosen recipe keeps more than the recipe that it is made from."""
    changes = tuple(f"training.{name}={number}" for name, number in asked.items())
    training = choose(SMALL_TEXT, 60, slow, changes).recipe.training
    assert (training.average, training.keep) == (asked["average"], keep)
    with pytest.raises(RecipeError, match="keep = 8 is less than average = 9"):
        choose(SMALL_TEXT, 60, slow, ("training.keep=8",))


def test_smaller_batches_lower_the_rate_of_adam_only() -> None:
    """A shorter warm-up lowers both rates, so that the highest one in the run is the same."""

    def peak(*more: str) -> float:
        training = choose(SMALL_TEXT, 1, slow, more).recipe.training
        return float(training.rate / training.warmup_steps**0.5)

    [model, *_], adam = rule_of_times()["model"], "training.optimizer=adam"
    muon, other = (
        pytest.approx(model["rate"][name] / model["warmup_steps"] ** 0.5)
        for name in ("muon", "adam")
    )
    batch = "data.source_tokens=4096", "data.target_tokens=4096"
    assert [peak(), peak(*batch), peak("training.warmup_steps=1000")] == [muon] * 3
    assert peak(*batch, adam) == other
    assert peak(adam) == pytest.approx(peak(*batch, adam) / 2**0.5)


def test_the_smallest_model_has_a_smaller_vocabulary() -> None:
    """But not one that a text of a few pairs could not be written with."""
    short, long = (choose(LARGE_TEXT, minutes, slow).recipe for minutes in (1, 600))
    assert (short.model.layers, long.model.layers) == (3, 4)
    most = rule_of_times()["model"][0]["vocabulary"]
    assert short.tokenizer.vocabulary == most < long.tokenizer.vocabulary
    asked = choose(LARGE_TEXT, 1, slow, ("tokenizer.vocabulary=9000",))
    assert asked.recipe.tokenizer.vocabulary == 9000
    many = ParallelText(10**8, 10**10, ((50, 50),))
    assert many.vocabulary() == rule_of_times()["vocabulary"]["most"]
    assert choose(many, 1, slow).recipe.tokenizer.vocabulary == most
    few = ParallelText(1, 50, ((50, 50),))
    assert (
        choose(few, 1, slow).recipe.tokenizer.vocabulary == rule_of_times()["vocabulary"]["least"]
    )


def test_the_three_smallest_models_begin_with_the_embedding_of_the_pairs() -> None:
    once, often = choose(LARGE_TEXT, 1, slow), choose(SMALL_TEXT, 10, slow)
    every = [once, often, *(choose(LARGE_TEXT, minutes, slow) for minutes in (240, 600, 3000))]
    sizes = [(found.recipe.model.layers, found.recipe.model.d_model) for found in every]
    assert sizes == [(3, 128), (3, 128), (4, 128), (4, 192), (4, 256)]
    assert once.epochs < 1 < often.epochs
    begin = [found.recipe.training.first_embedding for found in every]
    assert begin == ["pairs"] * 4 + ["random"]
    asked = ("training.first_embedding=random",)
    assert choose(LARGE_TEXT, 1, slow, asked).recipe.training.first_embedding == "random"


def test_weight_decay_can_be_asked_for_though_larger_models_have_adam() -> None:
    assert choose(SMALL_TEXT, 10, slow).recipe.training.weight_decay > 0
    asked = ("training.weight_decay=0.125",)
    assert choose(SMALL_TEXT, 10, slow, asked).recipe.training.weight_decay == 0.125


def test_weights_outside_the_embeddings() -> None:
    """Whatever the number of matrices: two or three are no more of them than one."""
    for embeddings in ("shared", "target", "inputs", "apart"):
        recipe = Recipe().but(
            layers=1, d_model=16, d_ff=23, heads=2, embeddings=embeddings, output_bias=True
        )
        model = new_model(recipe.model, 31, 31)
        layers = [*model.encoder.parameters(), *model.decoder.parameters()]
        assert weights_of(recipe) == sum(weights.numel() for weights in layers)


def words(count: int) -> dict[str, int]:
    """A vocabulary of other programs, with so many entries."""
    names = ["</s>", "<unk>", *(f"w{i}" for i in range(count - 3)), "<pad>"]
    return {name: i for i, name in enumerate(names)}


def of_two_vocabularies(folder: Path, source: int, target: int) -> Path:
    tokenizer = MosesTokenizer.read(
        words(source), words(target), specials=(-1, target - 1, 0), size=target,
        source_specials=(-1, source - 1, 0), source_size=source,
    )  # fmt: skip
    tokenizer.save(folder / "tokenizer.json")
    return folder / "tokenizer.json"


def test_a_named_tokenizer_gives_the_sizes_of_the_embeddings(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("words\n" * 3000)
    tokenizer, asked = of_two_vocabularies(tmp_path, 70_000, 50_000), "model.embeddings=apart"
    text = ParallelText.of([tmp_path / "text"], [tmp_path / "text"], tokenizer)
    seen = []

    def measure(recipe: Recipe, corpus: ParallelText) -> float:
        seen.append((recipe.tokenizer.vocabulary, *corpus.target_and_source(recipe)))
        return 100.0

    found = choose(text, 10, measure, (asked,))
    ours = open_tokenizer(tokenizer)
    assert set(seen) == {(ours.size, ours.size, ours.source_size)}
    assert ours.source_size - ours.size == 20_000
    learned = choose(text._replace(tokenizer=None), 10, measure, (asked,))
    assert learned.recipe.tokenizer.vocabulary < 10_000
    assert found.recipe.model == learned.recipe.model
    files = TrainingFiles([tmp_path / "text"], [tmp_path / "text"])
    assert files.suited(tokenizer).tokenizer.vocabulary == ours.size
    with pytest.raises(RecipeError, match='set it to "target" or "apart"'):
        choose(text, 10, measure)


def test_a_model_of_two_vocabularies_is_timed(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(of_two_vocabularies(tmp_path, 40, 3000))
    recipe = TINY.but(embeddings="target")
    assert tokens_per_second(recipe, SMALL_TEXT._replace(tokenizer=tokenizer)) > 0


def test_a_text_gets_the_vocabulary_and_the_rows_that_suit_it(tmp_path: Path) -> None:
    for pairs, words, vocabulary, rows in ((50, 3, 2000, 96), (40_000, 40, 8800, 128)):
        lines = (f"{number:05} " + "words " * (words - 1) + "\n" for number in range(pairs))
        (tmp_path / "text").write_text("".join(lines))
        files = TrainingFiles([tmp_path / "text"], [tmp_path / "text"])
        assert files.suited() == SMALL.but(vocabulary=vocabulary, row_length=rows, max_length=rows)


def test_repetitions_are_worth_less_than_new_text() -> None:
    once, again = expected_loss(10**6, 1e6, 1e6), expected_loss(10**6, 10e6, 1e6)
    assert expected_loss(10**6, 10e6, 10e6) < again < once
    assert expected_loss(10**6, 0.5e6, 1e6) == expected_loss(10**6, 0.5e6, 1e9)


def test_the_text_is_measured(tmp_path: Path) -> None:
    write(tmp_path / "a", (f"one {number:04}" for number in range(5000)))
    write(tmp_path / "b", ["eins"] * 5000)
    found = ParallelText.of([tmp_path / "a"], [tmp_path / "b"])
    assert (found.pairs, found.characters) == (5000, 20_000)
    assert set(found.lengths) == {(8, 4)}
    with pytest.raises(DataError):
        ParallelText.of([tmp_path / "a"], [tmp_path / "missing"])
    (tmp_path / "blank").write_text("\n" * 5000)
    for empty in ("a", "blank"), ("blank", "a"), ("blank", "blank"):
        with pytest.raises(DataError, match="blank: has no text: give text to learn from"):
            ParallelText.of(*([tmp_path / name] for name in empty))


@pytest.mark.parametrize(
    ("line", "tokenizer"),
    [
        ("ein Haus", "13a"),
        ("나는 책을 읽었다.", "char"),
        ("我在读书。", "zh"),
        ("本を読んだ。", "char"),
    ],
)
def test_bleu_divides_words_as_the_script_of_the_target_needs(
    line: str, tokenizer: str, tmp_path: Path
) -> None:
    write(tmp_path / "a", ["one"] * 50)
    write(tmp_path / "b", [f"{line} {number}" for number in range(50)])
    text = ParallelText.of([tmp_path / "a"], [tmp_path / "b"])
    chosen = choose(text, 30.0, fast)
    assert chosen.recipe.training.bleu_tokenizer == tokenizer
    assert ("BLEU divides words by" in chosen.sentences()[-1]) == (tokenizer != "13a")
    asked = choose(text, 30.0, fast, ("training.bleu_tokenizer=intl",))
    assert asked.recipe.training.bleu_tokenizer == "intl"
    prepare(source=tmp_path / "a", target=tmp_path / "b", out=tmp_path / "data")
    assert ParallelText.of_data(tmp_path / "data").bleu_tokenizer == tokenizer


def test_what_is_not_trained_on_does_not_count(tmp_path: Path) -> None:
    pairs = [(f"one {number}", f"eins {number}") for number in range(300)]
    write(tmp_path / "a", (one for one, _ in pairs))
    write(tmp_path / "b", (other for _, other in pairs))
    dropped = [("a", ""), ("", "b"), ("long " * 50_000, "lang " * 50_000), ("one " * 9, "e")]
    write(tmp_path / "c", (one for one, _ in pairs * 4 + dropped))
    write(tmp_path / "d", (other for _, other in pairs * 4 + dropped))
    clean = ParallelText.of([tmp_path / "a"], [tmp_path / "b"])
    assert ParallelText.of([tmp_path / "c"], [tmp_path / "d"]) == clean
    twice = [tmp_path / "a"] * 2, [tmp_path / "b"] * 2
    assert ParallelText.of(*twice) == clean


def test_pairs_that_mix_repeats_count_once(tmp_path: Path) -> None:
    texts = [["one"], ["two"]]
    for files in texts:
        name = files[0]
        write(tmp_path / name, (f"{name} {number} {number * number}" for number in range(200)))
        files[0] = str(tmp_path / name)
    sides = [Path(files[0]) for files in texts]
    found = []
    for mix in ([1, 1], [1, 10]):
        out, recipe = tmp_path / f"{mix}", SMALL.but(vocabulary=300)
        prepare(source=sides, target=sides, out=out, recipe=recipe, mix=mix)
        found.append(ParallelText.of_data(out))
    once, repeated = found
    assert repeated.pairs == once.pairs < 400
    assert repeated.characters == pytest.approx(once.characters, rel=0.05)


def test_a_large_text_is_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.budget.text.COUNTED", 500)
    write(tmp_path / "a", (f"{number % 5000:04}" for number in range(10_000)))
    found = ParallelText.of([tmp_path / "a"], [tmp_path / "a"])
    assert found.pairs == pytest.approx(5000, rel=0.15)
    assert found.characters == 4 * found.pairs


@pytest.mark.parametrize("targets", [1, 2, 50])
def test_a_large_text_of_few_targets_is_estimated(
    targets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.budget.text.COUNTED", 500)
    write(tmp_path / "a", (f"{number:04}" for number in range(5000)))
    write(tmp_path / "b", (f"{number % targets:04}" for number in range(5000)))
    found = ParallelText.of([tmp_path / "a"], [tmp_path / "b"])
    assert found.pairs == pytest.approx(5000, rel=0.15)


def write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still unless a test moves it."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("regard.budget.choice.time", clock)
    return clock


def seconds_of_steps(chosen: Choice) -> float:
    """The seconds that the steps of a choice are expected to take."""
    tokens = chosen.steps * FILLED * chosen.recipe.data.target_tokens
    return tokens / chosen.tokens_per_second


def test_time_that_choosing_takes_is_not_left_for_training(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU compiles each model that is timed, and the chosen model again when it is trained."""

    def compiling(recipe: Recipe, text: ParallelText) -> float:
        clock.now += 50
        return 200_000.0

    chosen = choose(LARGE_TEXT, 10, compiling)
    assert clock.now == 150  # the third began after 100 seconds, a fourth would after 150
    assert seconds_of_steps(chosen) == pytest.approx(0.9 * 600 - 150 - 47, rel=0.01)
    assert choose(LARGE_TEXT, 10, fast).steps > chosen.steps
    monkeypatch.setattr("regard.budget.choice.tokens_per_second", compiling)
    planned = for_several_times(LARGE_TEXT, 20, ())
    assert planned[:2] == [chosen, choose(LARGE_TEXT, 20, compiling)]


def test_time_lost_with_a_model_that_does_not_fit_is_not_left_either(
    clock: SimpleNamespace,
) -> None:
    def measure(recipe: Recipe, text: ParallelText) -> float:
        clock.now += 30
        if clock.now > 30:
            raise TrainingError("not even a part of a batch fits the memory")
        return 200_000.0

    chosen = choose(LARGE_TEXT, 10, measure)
    assert clock.now == 60
    assert seconds_of_steps(chosen) == pytest.approx(0.9 * 600 - 30 - 27 - 30, rel=0.01)


def test_the_machine_is_measured_and_random_numbers_stay() -> None:
    state = torch.get_rng_state()
    assert tokens_per_second(TINY, SMALL_TEXT) > 0
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2d", 172_800), ("0.5h", 1800)],
)
def test_times(text: str, seconds: float) -> None:
    assert seconds_in(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "1m1h", "-5m", "0s", "1e9d", "30 m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(RegardError, match="--time"):
        seconds_in(text)
