"""§6.3 Well-formed trees, against the enumeration of all sequences, read by `delinearise`."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

import regard.wellformed
from regard.arithmetic.plain import PLAIN
from regard.errors import ModelError
from regard.recipe import SearchRecipe
from regard.search import Hypothesis, search
from regard.text.tokenizer import BOS, EOS
from regard.trees.linearise import IllFormed, delinearise
from regard.wellformed import Alphabet, ParserInput, WellFormed, kind_of

NAMES = ["(A", "(B", ")B", ")A", "x", "yy"]
SYMBOLS = dict(zip(NAMES, [11, 5, 7, 6, 13, 12], strict=True))
VOCABULARY = 14  # the other ids are those of text
ALPHABET = Alphabet(SYMBOLS)
Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Toy:
    """A model whose logits depend on the sentence and on everything written so far."""

    seed: int

    def row(self, sentence: int, prefix: Prefix) -> Tensor:
        generator = random.Random(f"{self.seed} {sentence} {prefix}")
        return torch.tensor([generator.gauss(0, 2) for _ in range(VOCABULARY)])

    def start(self, source: list[int]) -> ToyState:
        return ToyState(self, [(sentence, ()) for sentence in source])

    def step(self, tokens: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        rows = [(s, (*p, t)) for (s, p), t in zip(state.rows, tokens.tolist(), strict=True)]
        return torch.stack([self.row(*row) for row in rows]), replace(state, rows=rows)


@dataclass(frozen=True)
class ToyState:
    toy: Toy
    rows: list[tuple[int, Prefix]]

    def select(self, rows: Tensor) -> ToyState:
        return ToyState(self.toy, [self.rows[i] for i in rows.flatten()])


def trees(words: int, longest: int) -> Iterator[tuple[str, ...]]:
    """Every sequence of fewer than `longest` symbols that is a tree over this many words."""
    for length in range(1, longest):
        for names in itertools.product(NAMES, repeat=length):
            if names.count("x") + names.count("yy") != words:
                continue  # quicker than a refusal of `delinearise`
            try:
                delinearise(names, ["w"] * words)
            except IllFormed:
                continue
            yield names


def log_p(toy: Toy, sentence: int, names: tuple[str, ...]) -> float:
    """log p of a tree by the model itself, without constraints."""
    tokens = [*(SYMBOLS[name] for name in names), EOS]
    steps = enumerate(tokens)
    rows = ((toy.row(sentence, (BOS, *tokens[:i])).log_softmax(0), token) for i, token in steps)
    return math.fsum(float(row[token]) for row, token in rows)


def found(
    toy: Toy, words: list[int], longest: list[int], beam: int, n_best: int = 1, alpha: float = 0.3
) -> list[list[Hypothesis]]:
    limits = torch.tensor(longest)
    kinds = torch.zeros(len(words), max(words), dtype=torch.long)
    asked = ParserInput(list(range(len(words))), torch.tensor(words), kinds, limits)
    recipe = SearchRecipe(beam=beam, alpha=alpha)
    model = WellFormed(toy, ALPHABET)
    return search(model, asked, limits, recipe, by=PLAIN, n_best=n_best)


def names_of(hypothesis: Hypothesis) -> tuple[str, ...]:
    return tuple(ALPHABET.names[token] for token in hypothesis.tokens)


@pytest.mark.parametrize(
    ("words", "longest", "count"), [(1, 4, 6), (1, 6, 14), (2, 6, 8), (2, 7, 56), (3, 6, 16)]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_finds_every_tree_with_the_probability_that_the_model_gives_it(
    words: int, longest: int, count: int, seed: int
) -> None:
    toy = Toy(seed)
    expected = {names: log_p(toy, 0, names) for names in trees(words, longest)}
    assert len(expected) == count
    [best] = found(toy, [words], [longest], beam=200, n_best=200, alpha=0.0)
    assert [names_of(h) for h in best] == sorted(expected, key=lambda names: -expected[names])
    for hypothesis in best:
        assert hypothesis.finished
        assert hypothesis.log_probability == pytest.approx(expected[names_of(hypothesis)], abs=1e-4)


def test_no_more_phrases_begin_together_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard.wellformed, "TOGETHER", 2)
    [best] = found(Toy(3), [1], [8], beam=200, n_best=200)
    expected = [names for names in trees(1, 8) if sum(name[0] == "(" for name in names) <= 2]
    assert sorted(map(names_of, best)) == sorted(expected)


def test_phrases_are_no_deeper_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regard.wellformed, "DEEPEST", 2)
    [best] = found(Toy(4), [2], [9], beam=999, n_best=999)
    depths = [max(itertools.accumulate(_turn(name) for name in names_of(h))) for h in best]
    assert max(depths) == 2
    assert len(best) > 56  # several phrases side by side take more room


def _turn(name: str) -> int:
    return {"(": 1, ")": -1}.get(name[0], 0)


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_sentences_of_a_batch_are_all_parsed_however_little_room_there_is(beam: int) -> None:
    words = [1, 7, 2, 30, 4, 1]
    for toy in map(Toy, range(3)):
        for more in (3, 4, 9):
            every = found(toy, words, [count + more for count in words], beam)
            for count, [best] in zip(words, every, strict=True):
                assert best.finished
                tree = delinearise(names_of(best), [str(i) for i in range(count)])
                assert len(tree.words()) == count


def test_what_may_not_follow_is_not_handed_to_what_may() -> None:
    toy = Toy(5)
    model = WellFormed(toy, ALPHABET)
    state = model.start(
        ParserInput([0], torch.tensor([2]), torch.zeros(1, 2).long(), torch.tensor([9]))
    )
    logits, _ = model.step(torch.tensor([BOS]), state)
    kept = logits[0].softmax(0)
    expected = toy.row(0, (BOS,)).softmax(0)
    for column, name in enumerate(ALPHABET.names[3:], 3):
        may = name in ("(A", "(B")
        assert float(kept[column]) == pytest.approx(float(expected[SYMBOLS[name]]) * may, abs=1e-6)


def test_punctuation_marks_have_tags_of_punctuation_and_no_other_words_do() -> None:
    names = ["(S", ")S", "NN", "VB", ",", "''"]
    alphabet = Alphabet({name: 5 + i for i, name in enumerate(names)})
    words = ["dog", ",", "'", "!", ":", "''"]
    kinds = torch.tensor([[kind_of(word) for word in reversed(words)]])
    limits = torch.tensor([len(words) + 3])
    asked = ParserInput([0], torch.tensor([len(words)]), kinds, limits)
    recipe = SearchRecipe(beam=500, alpha=0.0)
    model = WellFormed(Toy(6), alphabet)
    [best] = search(model, asked, limits, recipe, by=PLAIN, n_best=500)
    tags = {tuple(alphabet.names[token] for token in h.tokens[1:-1]) for h in best}
    plain, marks = {"NN", "VB"}, {",", "''"}
    either = plain | marks
    assert tags == set(itertools.product(plain, marks, either, marks, either, marks))


@pytest.mark.parametrize("symbols", [{}, {"(A": 5, "x": 6}, {"(A": 5, ")A": 6}, {"x": 5}])
def test_a_vocabulary_without_trees_is_refused(symbols: dict[str, int]) -> None:
    with pytest.raises(ModelError, match="not a parser"):
        Alphabet(symbols)


def test_a_model_that_gives_no_numbers_is_refused() -> None:
    class Broken(Toy):
        def row(self, sentence: int, prefix: Prefix) -> Tensor:
            return torch.full((VOCABULARY,), math.nan)

    with pytest.raises(ModelError, match="NaN"):
        found(Broken(1), [2], [9], beam=2)
