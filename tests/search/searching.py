"""A toy model to be searched, and a plain search with lists to compare with."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch import Tensor

from regard.equations import Arithmetic
from regard.recipe import SearchRecipe
from regard.search import Hypothesis, search

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


def sometimes_impossible(generator: random.Random) -> float:
    return IMPOSSIBLE if generator.random() < 0.4 else generator.gauss(0, 2)


def run(
    by: Arithmetic,
    toy: Toy,
    source: list[int],
    max_lengths: list[int],
    recipe: SearchRecipe,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    limits = torch.tensor(max_lengths, dtype=torch.long)
    return search(toy, source, limits, recipe, by=by, n_best=n_best)


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


seeds = st.integers(0, 10**6)
