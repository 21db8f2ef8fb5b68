"""§6.1 Beam search, against the enumeration of every sequence and a plain search with lists.

Each test runs by the definition of the ranking and by each faster one.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.arithmetic.choose import can_use_loops
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.products import Products
from regard.arithmetic.ranking import most_likely_by_blocks, summary
from regard.data.rows import one_per_row
from regard.errors import ModelError, RecipeError
from regard.hypotheses import choose_best
from regard.recipe import ModelRecipe, SearchRecipe
from regard.search import Hypothesis, Ranker, most_likely, search
from regard.transformer import Transformer
from twins import MARIAN, marian

RANKERS: dict[str, Ranker] = {"definition": most_likely, "blocks": Cpu(Products()).most_likely}
if can_use_loops():
    from regard.arithmetic.one_core import OneCore

    RANKERS["loops"] = OneCore(Products()).most_likely

PAD, BOS, EOS, FIRST = 0, 1, 2, 3  # the first ordinary token
IMPOSSIBLE = -math.inf
Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Toy:
    """A distribution whose logits depend on the sentence and the whole prefix."""

    vocabulary: int
    draw: Callable[[random.Random], float]
    seed: int = 0
    selections: list[Tensor] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    drawn: dict[tuple[int, Prefix], Tensor] = field(default_factory=dict)

    def row(self, sentence: int, prefix: Prefix) -> Tensor:
        if (sentence, prefix) not in self.drawn:
            generator = random.Random(f"{self.seed} {sentence} {prefix}")
            offset = generator.randint(-7, 7)  # logits are not normalised
            row = [offset + self.draw(generator) for _ in range(self.vocabulary)]
            self.drawn[sentence, prefix] = torch.tensor(row)
        return self.drawn[sentence, prefix]

    def start(self, source: list[int]) -> ToyState:
        return ToyState(self, [(sentence, ()) for sentence in source], len(source))

    def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        read = tokens.tolist()
        self.widths.append(len(read))
        assert len(read) == len(state.rows)
        rows = [(s, (*prefix, t)) for (s, prefix), t in zip(state.rows, read, strict=True)]
        return torch.stack([self.row(*row) for row in rows]), replace(state, rows=rows)


@dataclass(frozen=True)
class ToyState:
    toy: Toy
    rows: list[tuple[int, Prefix]]
    sentences: int

    def select(self, rows: Tensor) -> ToyState:
        beams = len(self.rows) // self.sentences
        origins = rows // beams
        assert (origins == origins[:, :1]).all(), "a sentence continues rows of another"
        assert (origins[1:, 0] > origins[:-1, 0]).all(), "sentences change their order"
        self.toy.selections.append(rows)
        return ToyState(self.toy, [self.rows[i] for i in rows.flatten()], len(rows))


def normal(generator: random.Random) -> float:
    return generator.gauss(0, 2)


@pytest.fixture(scope="module", params=RANKERS)
def ranker(request: pytest.FixtureRequest) -> Ranker:
    return RANKERS[request.param]


def run(
    ranker: Ranker,
    toy: Toy,
    source: list[int],
    max_lengths: list[int],
    recipe: SearchRecipe,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    limits, signs = (
        torch.tensor(max_lengths, dtype=torch.long),
        {"bos": BOS, "eos": EOS, "pad": PAD},
    )
    chooser = getattr(getattr(ranker, "__self__", None), "choose", choose_best)
    return search(
        toy, source, limits, recipe, n_best=n_best, **signs, ranker=ranker, chooser=chooser
    )


def log_p(toy: Toy, sentence: int, prefix: Prefix) -> list[float]:
    """log p of each next token, after <s> and `prefix`; padding and <s> are never produced."""
    row = toy.row(sentence, (BOS, *prefix)).tolist()
    total = math.log(sum(math.exp(x) for x in row)) if max(row) > IMPOSSIBLE else 0.0
    return [IMPOSSIBLE if t in (PAD, BOS) else x - total for t, x in enumerate(row)]


def penalty(length: int, recipe: SearchRecipe) -> float:
    counted = max(1, length)  # an empty hypothesis, when no token at all is possible
    base = {"gnmt": (5 + counted) / 6, "length": counted}[recipe.penalty]
    return float(base**recipe.alpha)


def assume_no_near_ties(values: Iterable[float]) -> None:
    """An order that rounding to single precision can change says nothing; equal values may stay."""
    ordered = sorted(values)
    assume(not any(0 < b - a < 1e-5 for a, b in itertools.pairwise(ordered)))


def enumerated(toy: Toy, sentence: int, longest: int, recipe: SearchRecipe) -> list[Hypothesis]:
    """Every finished sequence, best first."""
    found = []
    for length in range(longest):
        for body in itertools.product(range(FIRST, toy.vocabulary), repeat=length):
            steps = [*body, EOS]
            p = math.fsum(log_p(toy, sentence, body[:i])[t] for i, t in enumerate(steps))
            if p > IMPOSSIBLE:
                found.append(Hypothesis(body, p / penalty(length + 1, recipe), p, finished=True))
    assume_no_near_ties(h.score for h in found)
    return sorted(found, key=lambda h: -h.score)


def plain(
    toy: Toy, sentence: int, longest: int, recipe: SearchRecipe, *, stops_early: bool = True
) -> list[Hypothesis]:
    """The rules of the search for one sentence, with lists."""
    live: list[tuple[float, Prefix]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    for length in range(1, longest + 1):
        continuations = [
            (p + q, beam, token, prefix)
            for beam, (p, prefix) in enumerate(live)
            for token, q in enumerate(log_p(toy, sentence, prefix))
            if q > IMPOSSIBLE
        ]
        continuations.sort(key=lambda c: (-c[0], c[1], c[2]))
        assume_no_near_ties(p for p, *_ in continuations[: 2 * recipe.beam + 1])
        before, live = live, []
        of_beam = recipe.finish == "beam"
        candidates = continuations[: 1 if recipe.beam == 1 else 2 * recipe.beam]
        for place, (p, _, token, prefix) in enumerate(candidates):
            score, may_finish = p / penalty(length, recipe), place < recipe.beam or not of_beam
            if token != EOS:
                live.append((p, (*prefix, token)))
            if token == EOS and may_finish:
                finished.append(Hypothesis(prefix, score, p, True))
            elif of_beam and may_finish and length == longest:
                finished.append(Hypothesis((*prefix, token), score, p, False))
        live = live[: recipe.beam]
        assume_no_near_ties(h.score for h in finished)
        finished = sorted(finished, key=lambda h: -h.score)[: recipe.beam]
        if not live:
            live = before if not finished else []
            break
        bound = live[0][0] / penalty(length if of_beam else longest, recipe)
        if stops_early and len(finished) == recipe.beam and bound <= finished[-1].score:
            break
    return finished or [
        Hypothesis(prefix, p / penalty(len(prefix), recipe), p, False) for p, prefix in live
    ]


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    assert [h.finished for h in found] == [h.finished for h in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


def sometimes_impossible(generator: random.Random) -> float:
    return IMPOSSIBLE if generator.random() < 0.4 else generator.gauss(0, 2)


draws = st.sampled_from([normal, sometimes_impossible])
alphas = st.sampled_from([0.0, 0.3, 0.6, 1.0, 2.0])
seeds = st.integers(0, 10**6)
penalties = st.sampled_from(["gnmt", "length"])
finishes = st.sampled_from(["candidates", "beam"])


@given(
    ordinary=st.integers(1, 3),
    longest=st.integers(1, 4),
    draw=draws,
    alpha=alphas,
    base=penalties,
    seed=seeds,
)
@settings(max_examples=60, deadline=None)
def test_wide_beam_finds_what_enumeration_finds(
    ranker: Ranker,
    ordinary: int,
    longest: int,
    draw: Callable[..., float],
    alpha: float,
    base: Any,
    seed: int,
) -> None:
    toy = Toy(FIRST + ordinary, draw, seed)
    # A place for every sequence, finished or not; and beam 1 would be greedy.
    beam = max(2, sum(ordinary**n for n in range(longest)), ordinary**longest)
    recipe = SearchRecipe(beam=beam, alpha=alpha, penalty=base)
    expected = enumerated(toy, 7, longest, recipe)
    [found] = run(ranker, toy, [7], [longest], recipe, n_best=beam)
    if expected:
        assert_same(found, expected)
    else:
        assert found
        assert not any(h.finished for h in found)


@given(
    ordinary=st.integers(1, 13),
    max_lengths=st.lists(st.integers(1, 11), min_size=1, max_size=5),
    beam=st.integers(1, 5),
    draw=draws,
    alpha=alphas,
    base=penalties,
    finish=finishes,
    seed=seeds,
)
@settings(max_examples=100, deadline=None)
def test_batch_equals_plain_search_of_each_sentence(
    ranker: Ranker,
    ordinary: int,
    max_lengths: list[int],
    beam: int,
    draw: Callable[..., float],
    alpha: float,
    base: Any,
    finish: Any,
    seed: int,
) -> None:
    toy = Toy(FIRST + ordinary, draw, seed)
    recipe = SearchRecipe(beam=beam, alpha=alpha, penalty=base, finish=finish)
    source = list(range(len(max_lengths)))
    found = run(ranker, toy, source, max_lengths, recipe, n_best=beam)
    for sentence, longest in zip(source, max_lengths, strict=True):
        assert_same(found[sentence], plain(toy, sentence, longest, recipe))


@pytest.mark.parametrize("base", ["gnmt", "length"])
def test_where_no_token_is_possible_the_hypothesis_is_empty(ranker: Ranker, base: Any) -> None:
    toy = Toy(FIRST + 2, lambda _: IMPOSSIBLE, seed=1)
    [found] = run(ranker, toy, [7], [3], SearchRecipe(beam=2, alpha=1.0, penalty=base))
    assert found == [Hypothesis((), 0.0, 0.0, finished=False)]


@given(
    max_lengths=st.lists(st.integers(1, 17), min_size=1, max_size=3),
    beam=st.integers(2, 4),
    alpha=alphas,
    seed=seeds,
)
@settings(max_examples=60, deadline=None)
def test_stopping_early_changes_nothing(
    ranker: Ranker, max_lengths: list[int], beam: int, alpha: float, seed: int
) -> None:
    toy = Toy(FIRST + 2, normal, seed)
    recipe = SearchRecipe(beam=beam, alpha=alpha)
    source = list(range(len(max_lengths)))
    found = run(ranker, toy, source, max_lengths, recipe, n_best=beam)
    for sentence, longest in zip(source, max_lengths, strict=True):
        assert_same(found[sentence], plain(toy, sentence, longest, recipe, stops_early=False))


@given(
    max_lengths=st.lists(st.integers(1, 11), min_size=1, max_size=5),
    draw=draws,
    alpha=alphas,
    seed=seeds,
)
@settings(max_examples=60, deadline=None)
def test_beam_1_takes_the_likeliest_token_each_time(
    ranker: Ranker, max_lengths: list[int], draw: Callable[..., float], alpha: float, seed: int
) -> None:
    toy = Toy(FIRST + 5, draw, seed)
    source = list(range(len(max_lengths)))
    found = run(ranker, toy, source, max_lengths, SearchRecipe(beam=1, alpha=alpha))
    for sentence, longest in zip(source, max_lengths, strict=True):
        output: list[int] = []
        while len(output) < longest and EOS not in output:
            row = log_p(toy, sentence, tuple(output))
            if max(row) == IMPOSSIBLE:
                break
            assume_no_near_ties(sorted(row)[-2:])
            output.append(row.index(max(row)))
        [hypothesis] = found[sentence]
        assert [*hypothesis.tokens, *[EOS] * hypothesis.finished] == output


@given(beam=st.integers(1, 5), draw=draws, seed=seeds)
@settings(max_examples=30, deadline=None)
def test_result_of_a_sentence_does_not_depend_on_its_batch(
    ranker: Ranker, beam: int, draw: Callable[..., float], seed: int
) -> None:
    toy, recipe = Toy(FIRST + 5, draw, seed), SearchRecipe(beam=beam)
    source, max_lengths = [13, 11, 7, 5], [2, 9, 1, 6]
    together = run(ranker, toy, source, max_lengths, recipe, n_best=beam)
    for sentence, longest, found in zip(source, max_lengths, together, strict=True):
        [alone] = run(ranker, toy, [sentence], [longest], recipe, n_best=beam)
        assert_same(found, alone)


OF_TRANSFORMERS = [
    {"layers": 1, "d_model": 8, "d_ff": 12, "heads": 2},
    {"layers": 2, "d_model": 12, "d_ff": 17, "heads": 3, "activation": "swish"},
    {"layers": 1, "d_model": 16, "d_ff": 8, "heads": 4, "decoder_heads": 2, "embeddings": "target"},
]
LIMIT = 10


@pytest.mark.parametrize("beam", [1, 4, 5])
@pytest.mark.parametrize("sizes", OF_TRANSFORMERS, ids=["small", "swish", "target"])
def test_with_both_fields_it_is_the_search_of_transformers(
    sizes: dict[str, Any], beam: int
) -> None:
    pytest.importorskip("transformers")
    recipe = ModelRecipe(**MARIAN | sizes)
    ends, longest = 0, 0
    for seed in range(3):
        torch.manual_seed(seed)
        model = Transformer(recipe, 23).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        model.output_bias.data[EOS] += 2.0  # so that many end
        sources = [torch.randint(FIRST, 23, (n,)).tolist() for n in (6, 2, 9, 4, 1, 7)]
        theirs, source = marian(model, recipe), one_per_row(sources)
        for alpha in (0.0, 1.0, 1.7):
            rules = SearchRecipe(beam=beam, alpha=alpha, penalty="length", finish="beam")
            found = search(
                model, source, torch.full((len(sources),), LIMIT), rules, n_best=beam,
                bos=BOS, eos=EOS, pad=PAD,
            )  # fmt: skip
            expected = theirs.generate(
                input_ids=source.ids, attention_mask=(source.segments != 0).long(),
                num_beams=beam, length_penalty=alpha, max_new_tokens=LIMIT, do_sample=False,
                num_return_sequences=beam, suppress_tokens=[PAD, BOS], output_scores=True,
                return_dict_in_generate=True,
            )  # fmt: skip
            tokens = expected.sequences.view(len(sources), beam, -1)[..., 1:].tolist()
            for mine, all_theirs in zip(found, tokens, strict=True):
                cut = [takewhile(lambda token: token not in (EOS, PAD), x) for x in all_theirs]
                assert [h.tokens for h in mine] == [tuple(body) for body in cut]
                ends += sum(h.finished for h in mine)
                longest += sum(not h.finished for h in mine)
            if beam > 1:
                scores = torch.tensor([[h.score for h in mine] for mine in found])
                torch.testing.assert_close(
                    scores.flatten(), expected.sequences_scores, rtol=1e-4, atol=1e-4
                )
    assert ends
    assert longest  # some of either kind


def table(rows: dict[Prefix, dict[int, float]], vocabulary: int = 7) -> Toy:
    """Probabilities of the next token by prefix, without <s>; what is not named is impossible."""

    class Table(Toy):
        def row(self, sentence: int, prefix: Prefix) -> Tensor:
            given = rows.get(prefix[1:], {})
            return torch.tensor(
                [math.log(given[t]) if t in given else IMPOSSIBLE for t in range(vocabulary)]
            )

    return Table(vocabulary, normal)


def test_length_penalty_is_that_of_the_paper_with_the_end_counted(ranker: Ranker) -> None:
    # By log p the short one wins, 0.5 to 0.45; with the penalty the long one does.
    toy = table(
        {(): {EOS: 0.5, 3: 0.5}, (3,): {4: 0.9, 5: 0.1}, (3, 4): {EOS: 1.0}, (3, 5): {EOS: 1.0}}
    )
    [[plainly]] = run(ranker, toy, [0], [3], SearchRecipe(beam=2, alpha=0.0))
    assert plainly.tokens == ()
    [[long, short]] = run(ranker, toy, [0], [3], SearchRecipe(beam=2, alpha=0.6), n_best=2)
    assert (long.tokens, short.tokens) == ((3, 4), ())
    assert long.log_probability == pytest.approx(math.log(0.45))
    assert long.score == pytest.approx(math.log(0.45) / (8 / 6) ** 0.6)
    assert short.score == pytest.approx(math.log(0.5) / (6 / 6) ** 0.6)


def test_ended_continuations_leave_the_beam_full(ranker: Ranker) -> None:
    # Of the four best continuations two end; the other two both live on, and then finish first.
    toy = table(
        {
            (): {3: 0.5, 4: 0.5},
            (3,): {EOS: 0.6, 5: 0.4},
            (4,): {EOS: 0.7, 6: 0.3},
            (3, 5): {EOS: 1.0},
            (4, 6): {EOS: 1.0},
        }
    )
    [found] = run(ranker, toy, [0], [3], SearchRecipe(beam=2, alpha=5.0), n_best=2)
    assert [h.tokens for h in found] == [(3, 5), (4, 6)]


class Level(Toy):
    """All tokens as likely as one another."""

    def row(self, sentence: int, prefix: Prefix) -> Tensor:
        return torch.zeros(self.vocabulary)


def test_equal_continuations_rank_by_beam_then_token(ranker: Ranker) -> None:
    level = Level(FIRST + 4, normal)
    recipe = SearchRecipe(beam=3, alpha=0.0)
    # </s> 3 4 5 6 tie: </s> is kept aside, 3 4 5 live. Then 3 with each of the five, and 4 </s>.
    [found] = run(ranker, level, [0], [2], recipe, n_best=3)
    assert [h.tokens for h in found] == [(), (3,), (4,)]
    # Many equal candidates, so that the last chosen is one of a tie among thousands.
    wide = Level(FIRST + 4999, normal)
    [[first]] = run(ranker, wide, [0], [3], SearchRecipe(beam=1))
    assert first.tokens == ()
    without_end = table({(): dict.fromkeys(range(3, 997), 0.001)}, vocabulary=997)
    [found] = run(ranker, without_end, [0], [1], SearchRecipe(beam=5), n_best=5)
    assert [h.tokens for h in found] == [(3,), (4,), (5,), (6,), (7,)]


@given(ordinary=st.integers(1, 7), longest=st.integers(1, 6), beam=st.integers(1, 5), seed=seeds)
@settings(max_examples=60, deadline=None)
def test_ties_everywhere_resolve_as_in_the_plain_search(
    ranker: Ranker, ordinary: int, longest: int, beam: int, seed: int
) -> None:
    class Halves(Toy):
        """At every prefix some two tokens are possible, each with probability one half."""

        def row(self, sentence: int, prefix: Prefix) -> Tensor:
            generator = random.Random(f"{self.seed} {prefix}")
            row = torch.full((self.vocabulary,), IMPOSSIBLE)
            row[generator.sample(range(EOS, self.vocabulary), 2)] = 0.0
            return row

    toy, recipe = Halves(FIRST + ordinary, normal, seed), SearchRecipe(beam=beam, alpha=0.6)
    [found] = run(ranker, toy, [0], [longest], recipe, n_best=beam)
    assert_same(found, plain(toy, 0, longest, recipe))


def test_first_step_has_one_row_a_sentence_and_finished_sentences_leave(ranker: Ranker) -> None:
    class Endless(Toy):
        def row(self, sentence: int, prefix: Prefix) -> Tensor:
            return super().row(sentence, prefix).index_fill(0, torch.tensor(EOS), IMPOSSIBLE)

    toy = Endless(FIRST + 3, normal)
    run(ranker, toy, [0, 1, 2], [1, 5, 3], SearchRecipe(beam=2, alpha=0.0))
    assert toy.widths == [3, 2 * 2, 2 * 2, 2, 2]


def test_stops_when_nothing_live_can_overtake(ranker: Ranker) -> None:
    toy = table(
        {(): {EOS: 0.6, 3: 0.4}, (3,): {EOS: 0.9, 3: 0.1}, (3, 3): {3: 1.0}, (3, 3, 3): {3: 1.0}}
    )
    [[best]] = run(ranker, toy, [0], [997], SearchRecipe(beam=2, alpha=0.0))
    assert best.tokens == ()
    assert len(toy.widths) == 2


def test_longest_length_counts_the_end(ranker: Ranker) -> None:
    toy = table({(): {3: 1.0}, (3,): {4: 1.0}, (3, 4): {EOS: 1.0}})
    recipe = SearchRecipe(beam=2, alpha=0.6)
    (cut,), (whole,) = run(ranker, toy, [0, 1], [2, 3], recipe)
    assert (cut.tokens, cut.finished) == ((3, 4), False)
    assert (whole.tokens, whole.finished) == ((3, 4), True)


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_a_sentence_with_no_continuation_ends_with_what_it_had(ranker: Ranker, beam: int) -> None:
    toy = table({(): {3: 0.75, 4: 0.25}, (3,): {5: 1.0}, (4,): {6: 1.0}})
    [found] = run(ranker, toy, [0], [11], SearchRecipe(beam=beam, alpha=0.0), n_best=beam)
    assert [h.tokens for h in found] == [(3, 5), (4, 6)][:beam]
    assert not any(h.finished for h in found)
    [[nothing]] = run(ranker, table({}), [0], [11], SearchRecipe(beam=beam))
    assert nothing == Hypothesis((), 0.0, 0.0, finished=False)


def test_padding_and_begin_are_never_produced_though_likeliest(ranker: Ranker) -> None:
    toy = table({(): {PAD: 0.5, BOS: 0.3, 3: 0.2}, (3,): {BOS: 0.9, EOS: 0.1}})
    [[found]] = run(ranker, toy, [0], [5], SearchRecipe(beam=4))
    assert found.tokens == (3,)
    assert found.log_probability == pytest.approx(math.log(0.2 * 0.1))  # not renormalised


def test_an_end_symbol_that_also_begins_or_pads_still_ends(ranker: Ranker) -> None:
    toy = table({(): {3: 1.0}, (3,): {EOS: 0.75, 4: 0.25}, (3, 4): {EOS: 1.0}})
    limits, recipe = torch.tensor([5]), SearchRecipe(beam=2)
    signs = {"bos": EOS, "eos": EOS, "pad": EOS}
    [found] = search(toy, [0], limits, recipe, n_best=2, **signs, ranker=ranker)
    assert [h.tokens for h in found] == [(3,), (3, 4)]
    assert all(h.finished for h in found)


def test_rows_without_a_hypothesis_read_padding(ranker: Ranker) -> None:
    class Strict(Toy):
        """Refuses to be stepped along what it called impossible."""

        def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            for (sentence, prefix), token in zip(state.rows, tokens.tolist(), strict=True):
                possible = not prefix or self.row(sentence, prefix)[token] > IMPOSSIBLE
                assert token == PAD or possible
            return super().step(tokens, state)

    for seed in range(29):
        toy = Strict(FIRST + 3, sometimes_impossible, seed)
        run(ranker, toy, [0, 1], [7, 5], SearchRecipe(beam=5))


def test_half_precision_logits_are_normalised_in_single_precision(ranker: Ranker) -> None:
    class Half(Toy):
        def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            logits, after = super().step(tokens, state)
            return logits.bfloat16(), after

    # 1023 tokens as likely: -log 1023 = -6.9305 is -6.9375 in bfloat16.
    [[found]] = run(ranker, Half(1023, lambda _: 0.0), [0], [1], SearchRecipe(beam=2))
    assert found.log_probability == pytest.approx(-math.log(1023), abs=1e-5)


@pytest.mark.parametrize("vocabulary", [5, 128])
def test_the_models_logits_are_left_as_they_were(ranker: Ranker, vocabulary: int) -> None:
    logits = torch.zeros(1, vocabulary)

    class Same(Toy):
        def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            return logits, state

    run(ranker, Same(vocabulary, normal), [0], [1], SearchRecipe(beam=2))
    assert (logits == 0).all()


some_at_a_time = {
    f"blocks, {count} at once": partial(
        most_likely_by_blocks, summarize=partial(summary, at_once=count)
    )
    for count in (1, 1000, 2**21)
}


@pytest.mark.parametrize("ranker", [*RANKERS.values(), *some_at_a_time.values()])
@given(vocabulary=st.integers(120, 700), beam=st.integers(1, 4), seed=seeds)
@settings(max_examples=20, deadline=None)
def test_large_vocabularies_are_ranked_like_small_ones(
    ranker: Ranker, vocabulary: int, beam: int, seed: int
) -> None:
    def stepped(generator: random.Random) -> float:
        return float(round(generator.gauss(0, 1.5)))  # the larger the rarer, and many are equal

    toy, recipe = Toy(vocabulary, stepped, seed), SearchRecipe(beam=beam)
    found = run(ranker, toy, [0, 1], [2, 3], recipe, n_best=beam)
    for sentence, longest in enumerate([2, 3]):
        assert_same(found[sentence], plain(toy, sentence, longest, recipe))


def test_the_last_candidate_may_lie_far_from_the_others(ranker: Ranker) -> None:
    toy = table({(): {3: 0.4, 200: 0.3, 400: 0.2, 600: 0.1}}, vocabulary=601)
    limits, recipe = torch.tensor([1]), SearchRecipe(beam=2)
    [[found]] = search(toy, [0], limits, recipe, bos=BOS, eos=600, pad=PAD, ranker=ranker)
    assert found.finished
    assert found.log_probability == pytest.approx(math.log(0.1))


def test_no_sentences_no_results(ranker: Ranker) -> None:
    assert run(ranker, Toy(5, normal), [], [], SearchRecipe()) == []


@pytest.mark.parametrize("n_best", [0, 5])
def test_n_best_beyond_the_beam_is_refused(ranker: Ranker, n_best: int) -> None:
    with pytest.raises(RecipeError, match=f"n_best = {n_best}.*beam = 4"):
        run(ranker, Toy(5, normal), [0], [3], SearchRecipe(beam=4), n_best=n_best)


def test_a_longest_length_without_room_for_the_end_is_refused(ranker: Ranker) -> None:
    with pytest.raises(ValueError, match="maximum length of 0"):
        run(ranker, Toy(5, normal), [0, 1], [3, 0], SearchRecipe())


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf])
def test_logits_that_are_not_numbers_are_refused(ranker: Ranker, beam: int, value: float) -> None:
    with pytest.raises(ModelError, match="NaN"):
        run(ranker, Toy(11, lambda _: value), [0], [3], SearchRecipe(beam=beam))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("others", [0.0, -math.inf])
def test_one_logit_that_is_not_a_number_is_noticed(
    ranker: Ranker, others: float, sign: int
) -> None:
    logits = torch.full((2, 300), others)
    logits[1, 200] = torch.tensor(math.nan).copysign(torch.tensor(float(sign)))
    assert ranker(torch.zeros(1, 2), logits, (0, 1), 4).log_p.isnan().any()


class Continuation(NamedTuple):
    """One hypothesis with one token more."""

    parent: int
    token: int
    log_p: float


def continuations(
    live: list[float], rows: list[list[float]], never: tuple[int, ...], count: int
) -> list[Continuation]:
    """The `count` best possible ones of a sentence, among all of them, in double precision.

    Equal ones may stay only where their hypotheses are equal: else their order is one of rounding.
    """
    every = []
    for parent, (own, row) in enumerate(zip(live, rows, strict=True)):
        total = math.log(math.fsum(math.exp(x) for x in row)) if max(row) > IMPOSSIBLE else 0.0
        possible = [(t, x) for t, x in enumerate(row) if t not in never and own + x > IMPOSSIBLE]
        every += [Continuation(parent, t, own + x - total) for t, x in possible]
    every.sort(key=lambda one: (-one.log_p, one.parent, one.token))
    best = every[: count + 1]
    assume_no_near_ties(one.log_p for one in best)
    for one, other in itertools.pairwise(best):
        a, b = one.parent, other.parent
        assume(one.log_p > other.log_p or (live[a] == live[b] and rows[a] == rows[b]))
    return best[:count]


def drawn(
    generator: random.Random, sentences: int, beams: int, vocabulary: int
) -> tuple[list[list[float]], list[list[list[float]]]]:
    """log p of hypotheses, and their logits: many equal, some impossible, some hypotheses twice."""
    all_live, all_rows = [], []
    for _ in range(sentences):
        live: list[float] = []
        rows: list[list[float]] = []
        for _ in range(beams):
            if live and generator.random() < 0.3:
                copied = generator.randrange(len(live))
                live.append(live[copied])
                rows.append(rows[copied])
                continue
            step, impossible = generator.uniform(0.5, 2), generator.choice([0.0, 0.4, 0.9, 1.0])
            live.append(generator.choice([0.0, IMPOSSIBLE, -generator.uniform(0, 3)]))
            rows.append(
                [
                    IMPOSSIBLE
                    if generator.random() < impossible
                    else step * generator.randint(-2, 2)
                    for _ in range(vocabulary)
                ]
            )
        all_live.append(live)
        all_rows.append(rows)
    return all_live, all_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(
    sentences=st.integers(1, 3),
    beams=st.integers(1, 4),
    vocabulary=st.one_of(st.integers(3, 9), st.integers(127, 300)),
    never=st.sampled_from([(), (0,), (0, 1), (2, 0)]),
    count=st.integers(1, 9),
    seed=seeds,
)
@settings(max_examples=60, deadline=None)
def test_the_ranking_is_that_of_all_continuations(
    ranker: Ranker,
    dtype: torch.dtype,
    sentences: int,
    beams: int,
    vocabulary: int,
    never: tuple[int, ...],
    count: int,
    seed: int,
) -> None:
    live, rows = drawn(random.Random(seed), sentences, beams, vocabulary)
    logits = torch.tensor(rows).to(dtype).flatten(0, 1)
    before = logits.clone()
    found = ranker(torch.tensor(live), logits, never, count)
    assert torch.equal(logits, before)
    for number, read in enumerate(logits.float().unflatten(0, (-1, beams)).tolist()):
        ranked = [
            Continuation(*one) for one in zip(*(x[number].tolist() for x in found), strict=True)
        ]
        expected = continuations(live[number], read, never, count)
        possible, others = ranked[: len(expected)], ranked[len(expected) :]
        assert [one[:2] for one in possible] == [one[:2] for one in expected]
        for one, other in zip(possible, expected, strict=True):
            assert one.log_p == pytest.approx(other.log_p, abs=1e-5)
        assert all(one.log_p == IMPOSSIBLE for one in others)
