"""§6.1 The search ranks, finishes, stops and refuses as its rules say, worked by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.equations import Arithmetic
from regard.errors import ModelError, RecipeError
from regard.recipe import SearchRecipe
from regard.search import Hypothesis, search
from search.searching import (
    BOS,
    EOS,
    FIRST,
    IMPOSSIBLE,
    PAD,
    Prefix,
    Toy,
    ToyState,
    normal,
    run,
    sometimes_impossible,
)


def table(rows: dict[Prefix, dict[int, float]], vocabulary: int = 7) -> Toy:
    """Probabilities of the next token by prefix, without <s>; what is not named is impossible."""

    class Table(Toy):
        def row(self, sentence: int, prefix: Prefix) -> Tensor:
            given = rows.get(prefix[1:], {})
            return torch.tensor(
                [math.log(given[t]) if t in given else IMPOSSIBLE for t in range(vocabulary)]
            )

    return Table(vocabulary, normal)


def test_length_penalty_is_that_of_the_paper_with_the_end_counted(by: Arithmetic) -> None:
    # By log p the short one wins, 0.5 to 0.45; with the penalty the long one does.
    toy = table(
        {(): {EOS: 0.5, 3: 0.5}, (3,): {4: 0.9, 5: 0.1}, (3, 4): {EOS: 1.0}, (3, 5): {EOS: 1.0}}
    )
    [[plainly]] = run(by, toy, [0], [3], SearchRecipe(beam=2, alpha=0.0))
    assert plainly.tokens == ()
    [[long, short]] = run(by, toy, [0], [3], SearchRecipe(beam=2, alpha=0.6), n_best=2)
    assert (long.tokens, short.tokens) == ((3, 4), ())
    assert long.log_probability == pytest.approx(math.log(0.45))
    assert long.score == pytest.approx(math.log(0.45) / (8 / 6) ** 0.6)
    assert short.score == pytest.approx(math.log(0.5) / (6 / 6) ** 0.6)


def test_ended_continuations_leave_the_beam_full(by: Arithmetic) -> None:
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
    [found] = run(by, toy, [0], [3], SearchRecipe(beam=2, alpha=5.0), n_best=2)
    assert [h.tokens for h in found] == [(3, 5), (4, 6)]


class Level(Toy):
    """All tokens as likely as one another."""

    def row(self, sentence: int, prefix: Prefix) -> Tensor:
        return torch.zeros(self.vocabulary)


def test_equal_continuations_rank_by_beam_then_token(by: Arithmetic) -> None:
    level = Level(FIRST + 4, normal)
    recipe = SearchRecipe(beam=3, alpha=0.0)
    # </s> 3 4 5 6 tie: </s> is kept aside, 3 4 5 live. Then 3 with each of the five, and 4 </s>.
    [found] = run(by, level, [0], [2], recipe, n_best=3)
    assert [h.tokens for h in found] == [(), (3,), (4,)]
    # Many equal candidates, so that the last chosen is one of a tie among thousands.
    wide = Level(FIRST + 4999, normal)
    [[first]] = run(by, wide, [0], [3], SearchRecipe(beam=1))
    assert first.tokens == ()
    without_end = table({(): dict.fromkeys(range(3, 997), 0.001)}, vocabulary=997)
    [found] = run(by, without_end, [0], [1], SearchRecipe(beam=5), n_best=5)
    assert [h.tokens for h in found] == [(3,), (4,), (5,), (6,), (7,)]


def test_of_equal_scores_the_hypothesis_that_ended_first_is_better(by: Arithmetic) -> None:
    # One in 8002 each, so that a rounded log 1 is nothing beside it; 4 leads nowhere.
    toy = table({(): {EOS: 1.0, 3: 1.0, 4: 8000.0}, (3,): {EOS: 1.0}})
    [found] = run(by, toy, [0], [3], SearchRecipe(beam=2, alpha=0.0), n_best=2)
    assert found[0].score == found[1].score
    assert [h.tokens for h in found] == [(), (3,)]


def test_first_step_has_one_row_a_sentence_and_finished_sentences_leave(by: Arithmetic) -> None:
    class Endless(Toy):
        def row(self, sentence: int, prefix: Prefix) -> Tensor:
            return super().row(sentence, prefix).index_fill(0, torch.tensor(EOS), IMPOSSIBLE)

    toy = Endless(FIRST + 3, normal)
    run(by, toy, [0, 1, 2], [1, 5, 3], SearchRecipe(beam=2, alpha=0.0))
    assert toy.widths == [3, 2 * 2, 2 * 2, 2, 2]


def test_stops_when_nothing_live_can_overtake(by: Arithmetic) -> None:
    toy = table(
        {(): {EOS: 0.6, 3: 0.4}, (3,): {EOS: 0.9, 3: 0.1}, (3, 3): {3: 1.0}, (3, 3, 3): {3: 1.0}}
    )
    [[best]] = run(by, toy, [0], [997], SearchRecipe(beam=2, alpha=0.0))
    assert best.tokens == ()
    assert len(toy.widths) == 2


def test_longest_length_counts_the_end(by: Arithmetic) -> None:
    toy = table({(): {3: 1.0}, (3,): {4: 1.0}, (3, 4): {EOS: 1.0}})
    recipe = SearchRecipe(beam=2, alpha=0.6)
    (cut,), (whole,) = run(by, toy, [0, 1], [2, 3], recipe)
    assert (cut.tokens, cut.finished) == ((3, 4), False)
    assert (whole.tokens, whole.finished) == ((3, 4), True)


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_a_sentence_with_no_continuation_ends_with_what_it_had(by: Arithmetic, beam: int) -> None:
    toy = table({(): {3: 0.75, 4: 0.25}, (3,): {5: 1.0}, (4,): {6: 1.0}})
    [found] = run(by, toy, [0], [11], SearchRecipe(beam=beam, alpha=0.0), n_best=beam)
    assert [h.tokens for h in found] == [(3, 5), (4, 6)][:beam]
    assert not any(h.finished for h in found)
    [[nothing]] = run(by, table({}), [0], [11], SearchRecipe(beam=beam))
    assert nothing == Hypothesis((), 0.0, 0.0, finished=False)


@pytest.mark.parametrize("base", ["gnmt", "length"])
def test_where_no_token_is_possible_the_hypothesis_is_empty(by: Arithmetic, base: Any) -> None:
    toy = Toy(FIRST + 2, lambda _: IMPOSSIBLE, seed=1)
    [found] = run(by, toy, [7], [3], SearchRecipe(beam=2, alpha=1.0, penalty=base))
    assert found == [Hypothesis((), 0.0, 0.0, finished=False)]


def test_padding_and_begin_are_never_produced_though_likeliest(by: Arithmetic) -> None:
    toy = table({(): {PAD: 0.5, BOS: 0.3, 3: 0.2}, (3,): {BOS: 0.9, EOS: 0.1}})
    [[found]] = run(by, toy, [0], [5], SearchRecipe(beam=4))
    assert found.tokens == (3,)
    assert found.log_probability == pytest.approx(math.log(0.2 * 0.1))  # not renormalised


def test_an_end_symbol_that_also_begins_or_pads_still_ends(by: Arithmetic) -> None:
    toy = table({(): {3: 1.0}, (3,): {EOS: 0.75, 4: 0.25}, (3, 4): {EOS: 1.0}})
    limits, recipe = torch.tensor([5]), SearchRecipe(beam=2)
    signs = {"bos": EOS, "eos": EOS, "pad": EOS}
    [found] = search(toy, [0], limits, recipe, by=by, n_best=2, **signs)
    assert [h.tokens for h in found] == [(3,), (3, 4)]
    assert all(h.finished for h in found)


def test_rows_without_a_hypothesis_read_padding(by: Arithmetic) -> None:
    class Strict(Toy):
        """Refuses to be stepped along what it called impossible."""

        def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            for (sentence, prefix), token in zip(state.rows, tokens.tolist(), strict=True):
                possible = not prefix or self.row(sentence, prefix)[token] > IMPOSSIBLE
                assert token == PAD or possible
            return super().step(tokens, state)

    for seed in range(29):
        toy = Strict(FIRST + 3, sometimes_impossible, seed)
        run(by, toy, [0, 1], [7, 5], SearchRecipe(beam=5))


def test_half_precision_logits_are_normalised_in_single_precision(by: Arithmetic) -> None:
    class Half(Toy):
        def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            logits, after = super().step(tokens, state)
            return logits.bfloat16(), after

    # 1023 tokens as likely: -log 1023 = -6.9305 is -6.9375 in bfloat16.
    [[found]] = run(by, Half(1023, lambda _: 0.0), [0], [1], SearchRecipe(beam=2))
    assert found.log_probability == pytest.approx(-math.log(1023), abs=1e-5)


@pytest.mark.parametrize("vocabulary", [5, 128])
def test_the_models_logits_are_left_as_they_were(by: Arithmetic, vocabulary: int) -> None:
    logits = torch.zeros(1, vocabulary)

    class Same(Toy):
        def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
            return logits, state

    run(by, Same(vocabulary, normal), [0], [1], SearchRecipe(beam=2))
    assert (logits == 0).all()


def test_the_last_candidate_may_lie_far_from_the_others(by: Arithmetic) -> None:
    toy = table({(): {3: 0.4, 200: 0.3, 400: 0.2, 600: 0.1}}, vocabulary=601)
    limits, recipe = torch.tensor([1]), SearchRecipe(beam=2)
    [[found]] = search(toy, [0], limits, recipe, by=by, eos=600)
    assert found.finished
    assert found.log_probability == pytest.approx(math.log(0.1))


def test_no_sentences_no_results(by: Arithmetic) -> None:
    assert run(by, Toy(5, normal), [], [], SearchRecipe()) == []


@pytest.mark.parametrize("n_best", [0, 5])
def test_n_best_beyond_the_beam_is_refused(by: Arithmetic, n_best: int) -> None:
    with pytest.raises(RecipeError, match=f"n_best = {n_best}.*beam = 4"):
        run(by, Toy(5, normal), [0], [3], SearchRecipe(beam=4), n_best=n_best)


def test_a_longest_length_without_room_for_the_end_is_refused(by: Arithmetic) -> None:
    with pytest.raises(ValueError, match="maximum length of 0"):
        run(by, Toy(5, normal), [0, 1], [3, 0], SearchRecipe())


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf])
def test_logits_that_are_not_numbers_are_refused(by: Arithmetic, beam: int, value: float) -> None:
    with pytest.raises(ModelError, match="NaN"):
        run(by, Toy(11, lambda _: value), [0], [3], SearchRecipe(beam=beam))
