"""A ranking finds the best of all continuations, whatever the size of the vocabulary."""

import itertools
import math
import random
from typing import NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from regard.arithmetic.cpu import Cpu
from regard.arithmetic.products import Products
from regard.equations import Arithmetic
from regard.recipe import SearchRecipe
from search.conftest import ARITHMETICS
from search.searching import (
    IMPOSSIBLE,
    Toy,
    assert_same,
    assume_no_near_ties,
    plain,
    run,
    seeds,
)


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
    by: Arithmetic,
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
    found = by.most_likely(torch.tensor(live), logits, never, count)
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


def by_blocks(logits_at_once: int) -> Arithmetic:
    by = Cpu(Products())
    by.logits_at_once = logits_at_once
    return by


@pytest.mark.parametrize("by", [*ARITHMETICS.values(), *map(by_blocks, (1, 1000, 2**21))])
@given(vocabulary=st.integers(120, 700), beam=st.integers(1, 4), seed=seeds)
@settings(max_examples=20, deadline=None)
def test_large_vocabularies_are_ranked_like_small_ones(
    by: Arithmetic, vocabulary: int, beam: int, seed: int
) -> None:
    def stepped(generator: random.Random) -> float:
        return float(round(generator.gauss(0, 1.5)))  # the larger the rarer, and many are equal

    toy, recipe = Toy(vocabulary, stepped, seed), SearchRecipe(beam=beam)
    found = run(by, toy, [0, 1], [2, 3], recipe, n_best=beam)
    for sentence, longest in enumerate([2, 3]):
        assert_same(found[sentence], plain(toy, sentence, longest, recipe))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("others", [0.0, -math.inf])
def test_one_logit_that_is_not_a_number_is_noticed(
    by: Arithmetic, others: float, sign: int
) -> None:
    logits = torch.full((2, 300), others)
    logits[1, 200] = torch.tensor(math.nan).copysign(torch.tensor(float(sign)))
    assert by.most_likely(torch.zeros(1, 2), logits, (0, 1), 4).log_p.isnan().any()
