"""The second search: a wider beam, and no triple repetition."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from regard.arithmetic.plain import PLAIN
from regard.data.rows import one_per_row
from regard.hypotheses import Hypothesis
from regard.mending.retry import (
    LONGEST_PERIOD,
    Remembering,
    WithoutRepetition,
    search_again,
    wider_search,
)
from regard.recipe import SearchRecipe
from regard.search import search
from regard.text.tokenizer import BOS, EOS
from regard.translation import Translator

SENTENCES = ["the dog sees the cat", "the bird", "the tree likes the house"]


def tripled(items: list[Any]) -> bool:
    """Whether a group of up to eight items occurs three times in a row."""
    return any(
        items[i : i + p] == items[i + p : i + 2 * p] == items[i + 2 * p : i + 3 * p]
        for p in range(1, LONGEST_PERIOD + 1)
        for i in range(len(items) - 3 * p + 1)
    )


def allowed(*written: list[int]) -> list[list[int]]:
    """The tokens among 0 to 4 that may follow each row."""
    length = len(written[0])
    model = SimpleNamespace(step=lambda tokens, state: (torch.zeros(len(tokens), 5), state))
    state = Remembering(None, torch.tensor(written)[:, : length - 1])  # type: ignore[arg-type]
    last = torch.tensor([row[-1] for row in written])
    logits, after = WithoutRepetition(model).step(last, state)  # type: ignore[arg-type]
    assert after.tokens.tolist() == list(written)
    return [row.isfinite().nonzero()[:, 0].tolist() for row in logits]


def test_a_token_that_would_end_a_third_copy_is_barred() -> None:
    assert allowed([1, 2, 2], [2, 1, 1]) == [[0, 1, 3, 4], [0, 2, 3, 4]]
    assert allowed([3, 1, 2, 1, 2, 1]) == [[0, 1, 3, 4]]
    assert allowed([0, 1, 2, 0, 1, 2, 0, 1]) == [[0, 1, 3, 4]]
    assert allowed([0], [1]) == [[0, 1, 2, 3, 4]] * 2


def test_several_periods_bar_several_tokens() -> None:
    # A third 1 is barred, and the 2 that would complete the third (1 1 2).
    assert allowed([1, 1, 2, 1, 1, 2, 1, 1]) == [[0, 3, 4]]


def test_rows_that_are_chosen_bring_what_they_wrote() -> None:
    inner = SimpleNamespace(select=lambda rows: rows.tolist())
    chosen = Remembering(inner, torch.tensor([[1], [2], [3]])).select(torch.tensor([[2, 0]]))  # type: ignore[arg-type]
    assert chosen.tokens.tolist() == [[3], [1]]
    assert chosen.state == [[2, 0]]  # type: ignore[comparison-overlap]


def test_a_model_that_repeats_itself_no_longer_can(translator: Translator) -> None:
    pieces = translator.tokenizer.encode(SENTENCES)
    rows = one_per_row([[*some, EOS] for some in pieces])

    def found(model: Any) -> list[list[int]]:
        limits = torch.tensor([20, 20, 20])
        best = search(model, rows, limits, translator.recipe, by=PLAIN)
        return [list(h.tokens) for some in best for h in some]

    assert any(map(tripled, found(translator.model))), "this test needs a model that repeats itself"
    assert not any(map(tripled, found(WithoutRepetition(translator.model))))


def test_what_is_barred_makes_nothing_else_more_probable(translator: Translator) -> None:
    pieces = translator.tokenizer.encode(SENTENCES)
    rows = one_per_row([[*some, EOS] for some in pieces])
    limits = torch.tensor([20, 20, 20])
    found = search(WithoutRepetition(translator.model), rows, limits, translator.recipe, by=PLAIN)
    for number, best in enumerate(found):
        for one in best:
            state = translator.model.start(one_per_row([[*pieces[number], EOS]]))
            total, last = 0.0, BOS
            for token in [*one.tokens, EOS][: len(one.tokens) + one.finished]:
                logits, state = translator.model.step(torch.tensor([last]), state)
                total += float(logits.float().log_softmax(-1)[0, token])
                last = token
            assert one.log_probability == pytest.approx(total, abs=1e-3)


def test_the_second_search_is_wider(translator: Translator) -> None:
    again = search_again(translator, SENTENCES)
    assert len(again) == len(SENTENCES)
    for best in again:
        assert translator.recipe.beam < len(best) <= 2 * translator.recipe.beam


def test_batches_are_made_and_tested_for_the_wider_beam(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, beams = translator.recipe, list[int]()

    def agree(_: Any, beam: int, threads: object) -> bool:
        beams.append(beam)
        return True

    monkeypatch.setattr(type(translator.model.by), "batches_agree", agree)
    monkeypatch.setattr(translator.model.by, "few_rows_limits", None)
    monkeypatch.setattr(translator, "exact", True)
    monkeypatch.setattr(translator, "_tried", {})
    search_again(translator, SENTENCES)
    assert beams == [wider_search(first).beam]
    assert translator.recipe == first


def test_scores_have_the_length_penalty_of_the_first_search(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is that of the second search, which has a larger penalty."""
    monkeypatch.setattr(Translator, "texts", lambda _, best: best)
    first, second = translator.recipe, wider_search(translator.recipe)
    assert first.alpha < second.alpha
    for best in search_again(translator, SENTENCES):
        order = []
        for found in cast("list[Hypothesis]", best):
            length = len(found.tokens) + found.finished
            assert found.score == pytest.approx(
                found.log_probability / first.length_penalty(length)
            )
            order.append(found.log_probability / second.length_penalty(length))
        assert all(a >= b - 1e-6 for a, b in pairwise(order))


def test_the_second_search_is_no_wider_than_a_recipe_may_be() -> None:
    for beam, max_extra, wider in [
        (4, 50, 8), (501, 50, 1000), (1000, 50, 1000), (8, 10_000, 10), (10, 10_000, 10),
        (7, 7000, 14), (1, 10_000, 2),
    ]:  # fmt: skip
        second = wider_search(SearchRecipe(beam=beam, max_extra=max_extra))
        assert (second.beam, second.alpha) == (wider, 1.0)
    assert wider_search(SearchRecipe(alpha=1.5)).alpha == 1.5
