"""§6.1: "We used beam search with a beam size of 4 and length penalty alpha = 0.6."

A hypothesis y has the score log P(y | x) / ((5 + |y|) / 6)^alpha, where |y| counts </s> (Wu et al.
2016, equation 14). At each step, the 2 x beam best continuations of a sentence are its candidates.
Candidates that end in </s> are set aside as finished, and the best `beam` of the others stay live.
The search needs nothing of the model except that it can be stepped through.

With `finish = "beam"`, it is the search of the library transformers. Only candidates among the best
`beam` are set aside, if they end in </s> or have the maximum length. A sentence ends when the score
of its best live hypothesis, at its present length, is below the scores of all finished ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from regard.equations import Ranking
from regard.errors import ModelError, RecipeError
from regard.recipe import SearchRecipe

LEAVE_AT = 0.9
"""Ended sentences are removed when at most this share of a batch goes on, as removal is a copy."""


class Selectable(Protocol):
    """The state of a model, a row for each hypothesis; row = sentence * beams + beam."""

    def select(self, rows: Int[Tensor, "sentences beams"]) -> Self:
        """A state of these rows; the rows in `rows[s]` all belong to one sentence of this state.

        There may be fewer sentences than before, in the same order, and more beams.
        """


Source = TypeVar("Source", contravariant=True)
State = TypeVar("State", bound=Selectable)


class Steppable(Protocol[Source, State]):
    """A distribution over the next token, given a source and the tokens so far."""

    def start(self, source: Source, /) -> State:
        """The state before the first token, with one row for each sentence."""

    def step(
        self, tokens: Int[Tensor, " rows"], state: State, /
    ) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """The logits of the next token, -inf if it is impossible, and the state after `tokens`.

        `tokens` has the last token of each row. A row without a hypothesis, for example of a
        sentence that has ended, has the padding token, and its logits are not used.
        """


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search, without <s> and </s>."""

    tokens: tuple[int, ...]
    score: float
    """log P(y | x) over the length penalty."""
    log_probability: float
    """log P(y | x), natural logarithm, including that of </s> if it ends in one."""
    finished: bool
    """Whether it ends in </s>, rather than at the maximum length or where nothing can follow."""


class Hypotheses(NamedTuple):
    """Hypotheses of several sentences, best first; an empty place has log p and score -inf."""

    tokens: Int[Tensor, "sentences places length"]
    """Tokens from <s> on; after the </s> of a finished hypothesis, padding."""
    rows: Int[Tensor, "sentences places"]
    """The row of the model's state that each grew from."""
    log_p: Float[Tensor, "sentences places"]
    score: Float[Tensor, "sentences places"]

    def only(self, these: Bool[Tensor, "sentences places"]) -> Hypotheses:
        """Keep these hypotheses; empty every other place."""
        log_p, score = (field.masked_fill(~these, -torch.inf) for field in (self.log_p, self.score))
        return Hypotheses(self.tokens, self.rows, log_p, score)

    def beside(self, longer: Hypotheses, pad: int) -> Hypotheses:
        """Append the hypotheses `longer`, which have one token more, to these ones."""
        padded = self._replace(tokens=functional.pad(self.tokens, (0, 1), value=pad))
        return Hypotheses(*(torch.cat(both, dim=1) for both in zip(padded, longer, strict=True)))

    def best(self, count: int) -> Hypotheses:
        """The `count` hypotheses of highest score, best first; equal ones keep their order."""
        places = ranking(self.score, count)
        tokens = self.tokens.take_along_dim(places.unsqueeze(-1), dim=1)
        return Hypotheses(tokens, *(field.gather(1, places) for field in self[1:]))

    def of(self, sentences: Int[Tensor, " fewer"]) -> Hypotheses:
        """The hypotheses of these sentences."""
        return Hypotheses(*(field[sentences] for field in self))

    def read(self, eos: int) -> list[list[Hypothesis]]:
        """Copy the hypotheses of each sentence to the host; raises ModelError if a log p is NaN."""
        if self.log_p.isnan().any():
            raise ModelError("the model's logits are NaN or infinite: its weights are damaged")
        fields = (self.tokens[..., 1:].tolist(), self.log_p.tolist(), self.score.tolist())
        return [
            [_hypothesis(*one, eos) for one in zip(*places, strict=True) if one[1] > -math.inf]
            for places in zip(*fields, strict=True)
        ]


Ranker = Callable[[Tensor, Tensor, tuple[int, ...], int], Ranking]
"""The signature of `most_likely`."""
StepListener = Callable[[Int[Tensor, " sentences"], Hypotheses, Hypotheses, Hypotheses], None]
"""A function that is called after each step, with the numbers of the step's sentences, their
candidates, and their live and finished hypotheses after the step. A sentence that has ended may
take part in a few more steps, without a live hypothesis."""


def _hypothesis(tokens: list[int], log_p: float, score: float, eos: int) -> Hypothesis:
    body = tuple(itertools.takewhile(lambda token: token != eos, tokens))
    return Hypothesis(body, score, log_p, finished=eos in tokens)


@torch.inference_mode()
def search(
    model: Steppable[Source, State],
    source: Source,
    max_lengths: Int[Tensor, " sentences"],
    recipe: SearchRecipe,
    *,
    n_best: int = 1,
    bos: int,
    eos: int,
    pad: int,
    listen: StepListener | None = None,
    ranker: Ranker | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of highest score for each sentence, the best first.

    A sentence ends at its maximum length, when no token can follow, or when it has `beam` finished
    hypotheses and no live one can reach a higher score than the worst of them. Its result is its
    finished hypotheses, possibly fewer than `n_best`. Without finished ones, the result is its live
    ones or, if no token could follow, the live ones before that step. With beam 1, only the best
    continuation is considered: this is greedy search. Equal continuations are in the order of their
    hypotheses, then of their tokens.

    `max_lengths` counts </s>, is at least 1, and lies on the model's device. `bos` and `pad` are
    never produced. `listen` is called after every step. `ranker` computes what `most_likely`
    defines; None means `most_likely` itself. Raises RecipeError if `n_best` is not between 1 and
    the beam, ModelError if a log p is NaN.
    """
    if not 1 <= n_best <= recipe.beam:
        raise RecipeError(f"n_best = {n_best} must lie between 1 and beam = {recipe.beam}")
    if not len(max_lengths):
        return []
    penalty = _length_penalties(max_lengths, recipe)
    rules = _Rules(recipe, penalty, bos, eos, pad, ranker or most_likely)
    sentences = torch.arange(len(max_lengths), device=max_lengths.device)
    live = _filled(sentences, places=1, token=bos, log_p=0.0)
    finished = _filled(sentences, places=recipe.beam, token=pad, log_p=-math.inf)
    ended: list[tuple[Tensor, list[Hypotheses]]] = []
    going = torch.ones(len(sentences), dtype=torch.bool)  # on the host
    state = model.start(source)
    while len(sentences):
        last = live.tokens[..., -1].masked_fill(live.log_p == -torch.inf, pad)
        logits, state = model.step(last.flatten(), state.select(live.rows))
        before = live
        candidates = rules.continuations(live, logits)
        del logits  # so that the next step can use their memory
        live, finished = rules.choose(candidates, finished, max_lengths)
        if listen is not None:
            listen(sentences, candidates, live, finished)
        goes_on = rules.goes_on(live, finished, max_lengths).cpu()  # the only wait for a GPU
        if not torch.equal(goes_on, going):
            ends = (going & ~goes_on).nonzero()[:, 0].to(live.rows.device)
            ended.append((sentences[ends], [pool.of(ends) for pool in (finished, live, before)]))
            going &= goes_on
            live = live.only(going.to(live.rows.device).unsqueeze(1))
        if int(going.sum()) <= LEAVE_AT * len(going):
            stays = going.nonzero()[:, 0].to(live.rows.device)
            sentences, max_lengths, going = sentences[stays], max_lengths[stays], going[going]
            live, finished = live.of(stays), finished.of(stays)
    return _results(ended, n_best, eos)


def _results(
    ended: list[tuple[Tensor, list[Hypotheses]]], n_best: int, eos: int
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, from the first of its pools that is not empty."""
    results: dict[int, list[Hypothesis]] = {}
    for numbers, pools in ended:
        choices = zip(*(pool.read(eos) for pool in pools), strict=True)
        for number, choice in zip(numbers.tolist(), choices, strict=True):
            results[number] = next(filter(None, choice))[:n_best]
    return [results[number] for number in sorted(results)]


def _filled(sentences: Tensor, places: int, token: int, log_p: float) -> Hypotheses:
    tokens = sentences.new_full((len(sentences), places, 1), token)
    scores = torch.full_like(tokens[..., 0], log_p, dtype=torch.float32)
    return Hypotheses(tokens, sentences.unsqueeze(1).expand(-1, places), scores, scores)


def _length_penalties(lengths: Tensor, recipe: SearchRecipe) -> Float[Tensor, " lengths"]:
    """The length penalty of every length from 0 to the largest of `lengths`."""
    shortest, longest = (int(length) for length in lengths.aminmax())
    if shortest < 1:
        raise ValueError(f"a maximum length of {shortest} has no room for </s>: it is at least 1")
    # One number at a time: powers computed by vector instructions may differ in the last bit.
    every = [recipe.length_penalty(length) for length in range(longest + 1)]
    return torch.tensor(every, dtype=torch.float32, device=lengths.device)


@dataclass(frozen=True)
class _Rules:
    """One step of the search, for all sentences at once."""

    recipe: SearchRecipe
    penalty: Float[Tensor, " lengths"]
    bos: int
    eos: int
    pad: int
    ranker: Ranker

    def continuations(
        self, live: Hypotheses, logits: Float[Tensor, "rows vocabulary"]
    ) -> Hypotheses:
        """The best 2 x beam hypotheses that are one token longer than the live ones."""
        sentences, beams = live.log_p.shape
        count = 1 if self.recipe.beam == 1 else 2 * self.recipe.beam
        never = tuple({self.bos, self.pad} - {self.eos})
        parents, tokens, log_p = self.ranker(live.log_p, logits, never, count)
        prefixes = live.tokens.take_along_dim(parents.unsqueeze(-1), dim=1)
        longer = torch.cat([prefixes, tokens.unsqueeze(-1)], dim=-1)
        rows = parents + beams * torch.arange(sentences, device=parents.device).unsqueeze(-1)
        return Hypotheses(longer, rows, log_p, log_p / self.penalty[longer.shape[-1] - 1])

    def choose(
        self, candidates: Hypotheses, finished: Hypotheses, max_lengths: Int[Tensor, " sentences"]
    ) -> tuple[Hypotheses, Hypotheses]:
        """The best candidates that stay alive, and the best of all that have finished."""
        beam, final = self.recipe.beam, candidates.tokens[..., -1] == self.eos
        live = candidates.only(~final).best(beam)
        if self.recipe.finish == "beam":
            final = final | (max_lengths == candidates.tokens.shape[-1] - 1).unsqueeze(1)
            final[:, beam:] = False
        return live, finished.beside(candidates.only(final), self.pad).best(beam)

    def goes_on(
        self, live: Hypotheses, finished: Hypotheses, max_lengths: Int[Tensor, " sentences"]
    ) -> Bool[Tensor, " sentences"]:
        """Whether each sentence has room and a live hypothesis that may yet be one of its best."""
        length = live.tokens.shape[-1] - 1
        # No live hypothesis can score more: log p only falls, and the penalty of the longest output
        # is the largest. Searches that finish by "beam" guess that by the present length.
        bound = (
            live.log_p[:, 0] / self.penalty[length if self.recipe.finish == "beam" else max_lengths]
        )
        return (bound > finished.score[:, -1]) & (length < max_lengths)


def most_likely(
    live: Float[Tensor, "sentences beams"],
    logits: Float[Tensor, "rows vocabulary"],
    never: tuple[int, ...],
    count: int,
) -> Ranking:
    """The `count` largest of live + log softmax(logits) of each sentence, largest first.

    Tokens in `never` are left out. Equal continuations are in the order of their beams, then of
    their tokens. A row in which nothing is possible has no continuation: its log p are -inf.
    """
    vocabulary, beams = logits.shape[1], live.shape[1]
    log_p = logits.float().log_softmax(-1)
    log_p = log_p.masked_fill((logits == -torch.inf).all(-1, keepdim=True), -torch.inf)
    log_p[:, list(never)] = -torch.inf
    # [rows, vocabulary] -> [sentences, beams * vocabulary]
    log_p = (live.unsqueeze(-1) + log_p.unflatten(0, (-1, beams))).flatten(1)
    best = ranking(log_p, count)
    return Ranking(best // vocabulary, best % vocabulary, log_p.gather(1, best))


def ranking(
    values: Float[Tensor, "sentences values"], count: int
) -> Int[Tensor, "sentences count"]:
    """The places of the `count` largest values, largest first; equal ones keep their order.

    A value and its place are joined to one integer, so that no two are equal. NaN is the largest.
    """
    values = (values + 0.0).masked_fill(values.isnan(), torch.nan)  # one kind of 0, one of NaN
    bits = values.view(torch.int32)
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()  # the bits of negative floats descend
    places = torch.arange(values.shape[1], device=values.device)
    count = min(count, values.shape[1])
    return ((ordered << 32) - places).topk(count, dim=1).indices
