"""Accounts of searches, against results worked out by hand."""

import math
from typing import Self

import pytest
import torch
from torch import Tensor

from regard.arithmetic.plain import PLAIN
from regard.recipe import Recipe
from regard.run.model_directory import Model
from regard.search import search
from regard.text.tokenizer import BOS, EOS, Tokenizer
from regard.view.account import Account, Candidate, SearchRecorder

END = "</s>"


class Chain:
    """A model whose next letter depends on the last one only: a Markov chain."""

    def __init__(self, tokenizer: Tokenizer, after: dict[str, dict[str, float]]):
        letters = {tokenizer.decode([[i]])[0]: i for i in range(tokenizer.size)}
        ids = {"": BOS, END: EOS, **{letter: letters[letter] for letter in "abceZ"}}
        self.logits = torch.full((tokenizer.size, tokenizer.size), -math.inf)
        for last, probabilities in after.items():
            for letter, probability in probabilities.items():
                self.logits[ids[last], ids[letter]] = math.log(probability)

    def start(self, source: None) -> Self:
        return self

    def select(self, rows: Tensor) -> Self:
        return self

    def step(self, tokens: Tensor, state: Self) -> tuple[Tensor, Self]:
        return self.logits[tokens], self


def searched(
    model: Model, after: dict[str, dict[str, float]], longest: int, beam: int = 2, **other: str
) -> Account:
    recipe, recorder = Recipe().but(beam=beam, alpha=0.0, **other).search, SearchRecorder()
    chain = Chain(model.tokenizer, after)
    limits = torch.tensor([longest])
    search(chain, None, limits, recipe, by=PLAIN, listen=recorder)
    return recorder.account(model.tokenizer, recipe, longest)


def fates(account: Account) -> list[dict[str, str]]:
    """For each step, the fate of each text; a star marks the beginnings of the winner."""

    def shown(one: Candidate) -> str:
        end = END if one.piece == END else ""
        return f"{'*' if one.wins else ''}{one.text.replace(' ', '')}{end}"

    return [{shown(one): one.fate for one in step} for step in account.steps]


def test_the_second_beginning_wins(model: Model) -> None:
    account = searched(
        model,
        {
            "": {"a": 0.6, "b": 0.4},
            "a": {END: 0.5, "a": 0.3, "b": 0.2},
            "b": {END: 0.9, "a": 0.1},
        },
        longest=9,
    )
    assert fates(account) == [
        {"a": "lives", "*b": "lives"},
        {"*b</s>": "finished", "a</s>": "finished", "aa": "left", "ab": "left"},
    ]
    assert [one.log_p for one in account.steps[1]] == pytest.approx(
        [math.log(p) for p in (0.36, 0.30, 0.18, 0.12)], abs=1e-5
    )
    assert account.ending == (
        "The search ended with 2 finished hypotheses, the worst with a score of -1.204: the best "
        "live one could reach at most -1.715, at the longest output allowed, 9 pieces."
    )
    assert account.why == (
        '"b" won with -1.022 = -1.022 / 1.000 (log p / length penalty of 2 pieces). '
        'The next, "a", has -1.204 = -1.204 / 1.000 (log p / length penalty of 2 pieces): '
        "it is 1.2 times less probable. "
        ""
        "After step 1 the beginning of the winner ranked 2 among the live hypotheses; "
        'the first was "a".'
    )


def test_what_dies(model: Model) -> None:
    account = searched(
        model,
        {
            "": {"a": 0.6, "b": 0.3, "c": 0.1},
            "a": {END: 0.1, "a": 0.44, "c": 0.46},
            "b": {END: 0.04, "a": 0.16, "b": 0.8},
            "c": {END: 0.01, "a": 0.49, "c": 0.5},
        },
        longest=3,
    )
    assert fates(account) == [
        {"*a": "lives", "b": "dies", "c": "dropped"},
        {"ac": "lives", "aa": "dies", "bb": "dropped", "*a</s>": "finished"},
        {"acc": "left", "aca": "left", "aac": "dropped", "aaa": "dropped"},
    ]
    assert account.ending == "The search ended at the longest output allowed, 3 pieces."
    assert str(account).splitlines()[0] == "step 1"


def test_what_finishes_too_low(model: Model) -> None:
    account = searched(
        model,
        {"": {"a": 0.5, "b": 0.5}, "a": {END: 0.6, "a": 0.4}, "b": {END: 0.45, "b": 0.55}},
        longest=9,
    )
    assert fates(account)[1:] == [
        {"*a</s>": "finished", "bb": "lives", "b</s>": "finished", "aa": "lives"},
        {"bbb": "left", "bb</s>": "too low", "aa</s>": "too low", "aaa": "left"},
    ]


def test_no_hypothesis_is_left_to_go_on(model: Model) -> None:
    after = {"": {"a": 0.6, "b": 0.4}, "a": {END: 0.7, "a": 0.3}, "b": {"b": 1.0}}
    greedy = searched(model, after, longest=9, beam=1)
    assert fates(greedy) == [{"*a": "lives"}, {"*a</s>": "finished"}]
    assert greedy.ending == "The search ended because </s> was the best continuation."
    wide = searched(model, {"": {"a": 0.6, "b": 0.4}, "a": {END: 1.0}, "b": {END: 1.0}}, longest=9)
    assert wide.ending == "The search ended because every candidate ended in </s>."


def test_a_piece_is_marked_if_it_goes_on_in_its_own_hypothesis(model: Model) -> None:
    account = searched(model, {"": {"a": 0.7, "b": 0.3}, "a": {"e": 1.0}, "b": {"Z": 1.0}}, 2)
    assert [one.piece for one in account.steps[0]] == ["a", "b"]
    assert [one.piece for one in account.steps[1]] == ["·e", "·Z"]


def test_the_longest_output_is_a_finished_one(model: Model) -> None:
    after = {"": {"a": 0.8, "b": 0.2}, "a": {"a": 0.7, END: 0.3}, "b": {END: 1.0}}
    account = searched(model, after, longest=2, finish="beam")
    assert fates(account)[1] == {"*aa": "finished", "a</s>": "finished", "b</s>": "too low"}


def test_how_much_less_probable_is_told_although_no_float_can_hold_it(model: Model) -> None:
    after = {"": {END: 1.0, "a": 1e-300}, "a": {"b": 1.0, END: 1e-60}, "b": {"b": 1.0}}
    assert searched(model, after, longest=6).why.endswith("it is 10^360 times less probable.")


@pytest.mark.parametrize("beam", [1, 2])
def test_no_token_can_follow(model: Model, beam: int) -> None:
    account = searched(model, {"": {"a": 1.0}, "a": {}}, longest=9, beam=beam)
    assert fates(account) == [{"*a": "dies"}, {}]
    assert account.ending == "The search ended because no token could follow."
    assert account.why.startswith('"a" won with 0.000')
    nothing = searched(model, {"": {}}, longest=9, beam=beam)
    assert nothing.why.startswith('"" won with 0.000')


def test_nothing_finishes(model: Model) -> None:
    account = searched(model, {"": {"a": 1.0}, "a": {"a": 1.0}}, longest=2)
    assert fates(account) == [{"*a": "lives"}, {"*aa": "left"}]
    assert account.why.endswith(
        "won with 0.000 = 0.000 / 1.000 (log p / length penalty of 2 pieces)."
    )
