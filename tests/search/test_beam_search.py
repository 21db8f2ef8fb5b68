"""§6.1 Beam search finds what the enumeration of every sequence and two other searches find."""

import itertools
import math
import random
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.arithmetic.plain import PLAIN
from regard.data.rows import one_per_row
from regard.equations import Arithmetic
from regard.recipe import ModelRecipe, SearchRecipe
from regard.search import Hypothesis, search
from regard.transformer import Transformer
from search.searching import (
    BOS,
    EOS,
    FIRST,
    IMPOSSIBLE,
    PAD,
    Prefix,
    Toy,
    assert_same,
    assume_no_near_ties,
    log_p,
    normal,
    penalty,
    plain,
    run,
    seeds,
    sometimes_impossible,
)
from twins import MARIAN, marian


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


draws = st.sampled_from([normal, sometimes_impossible])
alphas = st.sampled_from([0.0, 0.3, 0.6, 1.0, 2.0])
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
@settings(max_examples=40, deadline=None)
def test_wide_beam_finds_what_enumeration_finds(
    by: Arithmetic,
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
    [found] = run(by, toy, [7], [longest], recipe, n_best=beam)
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
@settings(max_examples=60, deadline=None)
def test_batch_equals_plain_search_of_each_sentence(
    by: Arithmetic,
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
    found = run(by, toy, source, max_lengths, recipe, n_best=beam)
    for sentence, longest in zip(source, max_lengths, strict=True):
        assert_same(found[sentence], plain(toy, sentence, longest, recipe))


@given(
    max_lengths=st.lists(st.integers(1, 17), min_size=1, max_size=3),
    beam=st.integers(2, 4),
    alpha=alphas,
    seed=seeds,
)
@settings(max_examples=40, deadline=None)
def test_stopping_early_changes_nothing(
    by: Arithmetic, max_lengths: list[int], beam: int, alpha: float, seed: int
) -> None:
    toy = Toy(FIRST + 2, normal, seed)
    recipe = SearchRecipe(beam=beam, alpha=alpha)
    source = list(range(len(max_lengths)))
    found = run(by, toy, source, max_lengths, recipe, n_best=beam)
    for sentence, longest in zip(source, max_lengths, strict=True):
        assert_same(found[sentence], plain(toy, sentence, longest, recipe, stops_early=False))


@given(
    max_lengths=st.lists(st.integers(1, 11), min_size=1, max_size=5),
    draw=draws,
    alpha=alphas,
    seed=seeds,
)
@settings(max_examples=40, deadline=None)
def test_beam_1_takes_the_likeliest_token_each_time(
    by: Arithmetic, max_lengths: list[int], draw: Callable[..., float], alpha: float, seed: int
) -> None:
    toy = Toy(FIRST + 5, draw, seed)
    source = list(range(len(max_lengths)))
    found = run(by, toy, source, max_lengths, SearchRecipe(beam=1, alpha=alpha))
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
@settings(max_examples=15, deadline=None)
def test_result_of_a_sentence_does_not_depend_on_its_batch(
    by: Arithmetic, beam: int, draw: Callable[..., float], seed: int
) -> None:
    toy, recipe = Toy(FIRST + 5, draw, seed), SearchRecipe(beam=beam)
    source, max_lengths = [13, 11, 7, 5], [2, 9, 1, 6]
    together = run(by, toy, source, max_lengths, recipe, n_best=beam)
    for sentence, longest, found in zip(source, max_lengths, together, strict=True):
        [alone] = run(by, toy, [sentence], [longest], recipe, n_best=beam)
        assert_same(found, alone)


def test_what_ends_early_in_a_large_batch_keeps_its_result(by: Arithmetic) -> None:
    """It stays in the batch until a tenth of the sentences has ended."""
    recipe = SearchRecipe(beam=2, alpha=2.0, penalty="length", finish="beam")
    sentences, longest = list(range(13)), 11
    for seed in range(2):
        toy = Toy(FIRST + 5, normal, seed)
        together = run(by, toy, sentences, [longest] * len(sentences), recipe, n_best=2)
        for sentence, found in zip(sentences, together, strict=True):
            [alone] = run(by, toy, [sentence], [longest], recipe, n_best=2)
            assert_same(found, alone)


@given(ordinary=st.integers(1, 7), longest=st.integers(1, 6), beam=st.integers(1, 5), seed=seeds)
@settings(max_examples=40, deadline=None)
def test_ties_everywhere_resolve_as_in_the_plain_search(
    by: Arithmetic, ordinary: int, longest: int, beam: int, seed: int
) -> None:
    class Halves(Toy):
        """At every prefix some two tokens are possible, each with probability one half."""

        def row(self, sentence: int, prefix: Prefix) -> Tensor:
            generator = random.Random(f"{self.seed} {prefix}")
            row = torch.full((self.vocabulary,), IMPOSSIBLE)
            row[generator.sample(range(EOS, self.vocabulary), 2)] = 0.0
            return row

    toy, recipe = Halves(FIRST + ordinary, normal, seed), SearchRecipe(beam=beam, alpha=0.6)
    [found] = run(by, toy, [0], [longest], recipe, n_best=beam)
    assert_same(found, plain(toy, 0, longest, recipe))


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
    for seed, alpha in enumerate((0.0, 1.0, 1.7)):
        torch.manual_seed(seed)
        model = Transformer(recipe, 23).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        model.output_bias.data[EOS] += 2.0  # so that many end
        sources = [torch.randint(FIRST, 23, (n,)).tolist() for n in (6, 2, 9, 4, 1, 7)]
        theirs, source = marian(model, recipe), one_per_row(sources)
        rules = SearchRecipe(beam=beam, alpha=alpha, penalty="length", finish="beam")
        found = search(
            model, source, torch.full((len(sources),), LIMIT), rules, by=PLAIN, n_best=beam
        )
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
