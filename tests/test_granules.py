"""A search whose host looks rarely finds what one finds that looks after every step."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.arithmetic.choose import for_inference
from regard.arithmetic.cuda import STEPS_UNSEEN, Cuda
from regard.arithmetic.plain import PLAIN
from regard.data.rows import Rows, one_per_row
from regard.encoder_decoder import EncoderDecoder
from regard.ensemble import Ensemble
from regard.equations import Arithmetic
from regard.families.choose import new_model
from regard.granules import ONE_STEP, Granule
from regard.hypotheses import Hypothesis
from regard.mending.retry import WithoutRepetition
from regard.recipe import Recipe, SearchRecipe
from regard.search import search
from regard.text.tokenizer import EOS
from regard.wellformed import Alphabet, ParserInput, WellFormed
from regard.word_positions import WordEmbedding
from waits import Waits

GRANULES = [Granule(steps) for steps in (2, 3, STEPS_UNSEEN)]
SENTENCES, PREFIXES, VOCABULARY = torch.arange(8), 997, 23
ON_THE_HOST = " without_ended: "
"""A function whose numbers are on the host."""


def in_granules(granule: Granule, by: Arithmetic = PLAIN) -> Arithmetic:
    """A copy of an arithmetic, with another granule."""
    by = copy(by)
    by.granule = granule
    return by


@dataclass(frozen=True)
class Drawn:
    """A distribution for each prefix of each sentence, looked up without a wait."""

    logits: Tensor  # [PREFIXES, vocabulary]

    def start(self, source: Tensor) -> Prefixes:
        return Prefixes(source)

    def step(self, tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        prefixes = (state.numbers * 31 + tokens + 1) % PREFIXES
        return self.logits[prefixes], replace(state, numbers=prefixes)


@dataclass(frozen=True)
class Prefixes:
    """The prefix of each row as a number."""

    numbers: Tensor

    def select(self, rows: Tensor) -> Prefixes:
        return Prefixes(self.numbers[rows.flatten()])


def drawn(vocabulary: int, impossible: float, ties: bool, seed: int) -> Drawn:
    """Logits of which some are -inf, and many are equal if there are ties."""
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(PREFIXES, vocabulary, generator=draw)
    logits = logits.round() if ties else logits
    none = torch.rand(logits.shape, generator=draw) < impossible
    return Drawn(logits.masked_fill(none, -torch.inf))


@given(
    vocabulary=st.integers(4, 14),
    impossible=st.sampled_from([0.0, 0.4, 0.8]),
    ties=st.booleans(),
    max_lengths=st.lists(st.integers(1, 40), min_size=16, max_size=16),
    beam=st.sampled_from([1, 4, 7]),
    n_best=st.integers(1, 7),
    alpha=st.sampled_from([0.0, 0.6, 2.0]),
    penalty=st.sampled_from(["gnmt", "length"]),
    finish=st.sampled_from(["candidates", "beam"]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=42, deadline=None)
def test_results_do_not_depend_on_the_granule(
    vocabulary: int,
    impossible: float,
    ties: bool,
    max_lengths: list[int],
    beam: int,
    n_best: int,
    alpha: float,
    penalty: Any,
    finish: Any,
    seed: int,
) -> None:
    """42 batches of 16 sentences, each with distributions of its own, in granules of 3 sizes."""
    toy, limits = drawn(vocabulary, impossible, ties, seed), torch.tensor(max_lengths)
    recipe = SearchRecipe(beam=beam, alpha=alpha, penalty=penalty, finish=finish)
    sentences = torch.arange(len(limits))
    right, *others = (
        search(toy, sentences, limits, recipe, by=in_granules(granule), n_best=min(beam, n_best))
        for granule in (ONE_STEP, *GRANULES)
    )
    for found in others:
        assert found == right


def sources(count: int) -> Rows:
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 12, (count,), generator=draw).tolist()
    return one_per_row(
        [[*torch.randint(3, VOCABULARY, (n,), generator=draw).tolist(), EOS] for n in lengths]
    )


def tiny(**fields: Any) -> EncoderDecoder:
    torch.manual_seed(1)
    recipe = Recipe().but(layers=2, d_model=32, d_ff=40, heads=4, output_bias=True, **fields)
    model = new_model(recipe.model, VOCABULARY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.6)  # so that continuations differ in likelihood
        model.output_bias[EOS] = -4.0  # so that some are long
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "paper": tiny,
    "neighbourhood": lambda: tiny(neighbourhood=5),
    "learned positions": lambda: tiny(positions="learned", max_positions=256),
    "recurrent": lambda: tiny(family="recurrent"),
    "several": lambda: Ensemble([tiny(), tiny(family="recurrent"), tiny(activation="gelu")]),
    "without repetition": lambda: WithoutRepetition(tiny()),
}


def of_a_cpu() -> Arithmetic:
    return for_inference(torch.device("cpu"), torch.float32)


def of_a_gpu() -> Arithmetic:
    return Cuda(learning=False)


@pytest.mark.parametrize(
    ("kind", "make"), [*((kind, of_a_gpu) for kind in MODELS), ("paper", of_a_cpu)]
)
def test_whole_models_in_granules(kind: str, make: Callable[[], Arithmetic]) -> None:
    model, arithmetic = MODELS[kind](), make()
    for member in getattr(model, "model", model).members:
        member.compute_by(arithmetic)
    source = sources(6)
    limits = (source.segments != 0).sum(1) + 20
    for beam, finish in ((1, "beam"), (4, "candidates")):
        recipe = SearchRecipe(beam=beam, finish=finish)
        right, *others = (
            search(model, source, limits, recipe, by=in_granules(granule, arithmetic), n_best=beam)
            for granule in (ONE_STEP, *GRANULES[1:])
        )
        assert len({best.tokens for best, *_ in right}) > 2
        for found in others:
            assert_near(found, right)


def assert_near(found: list[list[Hypothesis]], right: list[list[Hypothesis]]) -> None:
    """The same hypotheses; what is summed with other slots between may differ in its last bits."""
    assert [[h.tokens for h in best] for best in found] == [
        [h.tokens for h in best] for best in right
    ]
    for one, other in zip(itertools.chain(*found), itertools.chain(*right), strict=True):
        assert one.finished == other.finished
        assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("positions", ["sinusoidal", "words"])
def test_parsing_in_granules(positions: str) -> None:
    model, words = tiny(positions=positions, output="trees"), torch.tensor([3, 1, 4])
    if isinstance(model.embedding, WordEmbedding):  # the places of a beam are empty at first
        model.embedding.begins = torch.arange(VOCABULARY) % 3 == 1
    alphabet = Alphabet({"(A": 11, "(B": 5, ")B": 7, ")A": 6, "x": 13, "yy": 12})
    limits = torch.tensor([20, 9, 17])
    source = ParserInput(sources(3), words, torch.zeros(3, 4, dtype=torch.long), limits)
    right, *others = (
        search(
            WellFormed(model, alphabet), source, limits, SearchRecipe(beam=4),
            by=in_granules(granule), n_best=4,
        )
        for granule in (ONE_STEP, *GRANULES)
    )  # fmt: skip
    assert all(one.finished for best in right for one in best)
    for found in others:
        assert_near(found, right)


def test_sentences_leave_between_granules_only() -> None:
    widths: list[int] = []

    class Watched(Drawn):
        def step(self, tokens: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
            widths.append(len(tokens))
            return super().step(tokens, state)

    logits = drawn(9, 0.0, False, 1).logits.index_fill(1, torch.tensor(EOS), -torch.inf)
    limits = torch.tensor([1, 2, 3, 4, 5, 6, 7, 10])
    search(Watched(logits), SENTENCES, limits, SearchRecipe(beam=2), by=in_granules(Granule(4)))
    assert widths == 4 * [16] + 4 * [8] + 2 * [2]  # no step after the longest length


def test_with_a_listener_each_step_is_looked_at() -> None:
    toy, limits = drawn(9, 0.0, False, 1), torch.full((8,), 9)
    heard: list[list[list[int]]] = []
    for granule in (ONE_STEP, Granule(4)):
        heard.append([])
        search(
            toy, SENTENCES, limits, SearchRecipe(beam=2), by=in_granules(granule),
            listen=lambda _, candidates, *__: heard[-1].append(candidates.tokens.tolist()),
        )  # fmt: skip
    assert heard[0] == heard[1]


def waits(beam: int, longest: int, granule: Granule) -> Counter[str]:
    """Where a search by a GPU's arithmetic waits, and how often; each sentence ends by itself."""
    model = tiny()
    model.compute_by(Cuda(learning=False))
    source, limits = sources(8), torch.arange(longest - 7, longest + 1)
    by = in_granules(granule, model.by)
    with Waits() as found:
        search(model, source, limits, SearchRecipe(beam=beam), by=by)
    return found.found


def test_a_granule_waits_once() -> None:
    """All other waits are at the beginning and at the end of the search."""
    short, long = (waits(4, longest, Granule(8)) for longest in (14, 14 + 3 * 8))
    more = {line: n for line, n in (long - short).items() if ON_THE_HOST not in line}
    [(line, times)] = more.items()
    assert line.endswith("_look: a copy from or to the device")
    assert times == 3


def test_without_granules_each_step_waits_and_each_compaction() -> None:
    found = waits(4, 30, ONE_STEP)
    assert sum(n for line, n in found.items() if "_look: " in line) == 30
    assert sum(n for line, n in found.items() if "_compact: " in line) == 1
