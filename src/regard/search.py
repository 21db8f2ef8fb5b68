"""§6.1: "We used beam search with a beam size of 4 and length penalty alpha = 0.6."

A hypothesis y has the score log P(y | x) / ((5 + |y|) / 6)^alpha, where |y| counts </s> (Wu et al.
2016, equation 14). At each step the 2 x beam best continuations of a sentence are its candidates:
those that end in </s> are kept aside, the best `beam` of the others stay alive. Nothing here knows
what model it searches, only that one can step through it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from regard.errors import ModelError, RecipeError
from regard.recipe import SearchRecipe

BLOCK = 128
"""Candidates compared by their maximum before they are compared one by one."""


class Selectable(Protocol):
    """What a model remembers of its rows; row = sentence * beams + beam."""

    def select(self, rows: Int[Tensor, "sentences beams"]) -> Self:
        """The state whose rows, sentence by sentence, are these of the present rows.

        `rows[s]` all belong to one present sentence. There may be fewer sentences than before, in
        the same order, and more beams.
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
        """Logits of the token after `tokens`, -inf where impossible, and the state after them.

        A row that holds no hypothesis is given the padding token, and its logits are not used.
        """


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search, without <s> and </s>."""

    tokens: tuple[int, ...]
    score: float
    """log P(y | x) over the length penalty."""
    log_probability: float
    """log P(y | x), natural logarithm, that of </s> included where there is one."""
    finished: bool
    """Whether it ends in </s>, rather than at the longest length or where nothing can follow."""


class Hypotheses(NamedTuple):
    """Hypotheses of several sentences, best first; an empty place has log p and score -inf."""

    tokens: Int[Tensor, "sentences places length"]
    """From <s>; after the </s> of a finished one, padding."""
    rows: Int[Tensor, "sentences places"]
    """The row of the model's state that each grew from."""
    log_p: Float[Tensor, "sentences places"]
    score: Float[Tensor, "sentences places"]

    def only(self, these: Bool[Tensor, "sentences places"]) -> Hypotheses:
        """These, and the other places emptied."""
        log_p, score = (field.masked_fill(~these, -torch.inf) for field in (self.log_p, self.score))
        return Hypotheses(self.tokens, self.rows, log_p, score)

    def beside(self, longer: Hypotheses, pad: int) -> Hypotheses:
        """These, then others that are one token longer."""
        padded = self._replace(tokens=functional.pad(self.tokens, (0, 1), value=pad))
        return Hypotheses(*(torch.cat(both, dim=1) for both in zip(padded, longer, strict=True)))

    def best(self, count: int) -> Hypotheses:
        """The `count` of highest score, best first; of equals, the first."""
        places = _ranking(self.score, count)
        tokens = self.tokens.take_along_dim(places.unsqueeze(-1), dim=1)
        return Hypotheses(tokens, *(field.gather(1, places) for field in self[1:]))

    def of(self, sentences: Int[Tensor, " fewer"]) -> Hypotheses:
        """The hypotheses of these sentences."""
        return Hypotheses(*(field[sentences] for field in self))

    def read(self, eos: int) -> list[list[Hypothesis]]:
        """Bring to the host; raises ModelError if the model's logits were not numbers."""
        if self.log_p.isnan().any():
            raise ModelError("the model's logits are NaN or infinite: its weights are damaged")
        fields = (self.tokens[..., 1:].tolist(), self.log_p.tolist(), self.score.tolist())
        return [
            [_hypothesis(*one, eos) for one in zip(*places, strict=True) if one[1] > -math.inf]
            for places in zip(*fields, strict=True)
        ]


def _hypothesis(tokens: list[int], log_p: float, score: float, eos: int) -> Hypothesis:
    body = tuple(itertools.takewhile(lambda token: token != eos, tokens))
    return Hypothesis(body, score, log_p, finished=eos in tokens)


@torch.no_grad()
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
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of highest score for each sentence, best first.

    A sentence ends at its longest length, or when it has `beam` finished hypotheses and no live one
    could overtake the worst of them. It gets its finished hypotheses, perhaps fewer than `n_best`;
    if there are none, its live ones; if none of those could go on, the ones they grew from.

    Beam 1 considers the one best continuation, and so is greedy search. Of equal continuations that
    of the better hypothesis comes first, then the lower token: on every device, in every batch.

    `max_lengths` counts </s>, is at least 1, and lies on the model's device. `bos` and `pad` are
    never produced. Raises RecipeError if `n_best` is not between 1 and the beam, ModelError if the
    model's logits are not numbers.
    """
    if not 1 <= n_best <= recipe.beam:
        raise RecipeError(f"n_best = {n_best} must lie between 1 and beam = {recipe.beam}")
    if not len(max_lengths):
        return []
    rules = _Rules(recipe.beam, _length_penalty(max_lengths, recipe.alpha), bos, eos, pad)
    sentences = torch.arange(len(max_lengths), device=max_lengths.device)
    live = _filled(sentences, places=1, token=bos, log_p=0.0)
    finished = _filled(sentences, places=recipe.beam, token=pad, log_p=-math.inf)
    ended: list[tuple[Tensor, list[Hypotheses]]] = []
    state = model.start(source)
    while len(sentences):
        last = live.tokens[..., -1].masked_fill(live.log_p == -torch.inf, pad)
        logits, state = model.step(last.flatten(), state.select(live.rows))
        before = live
        live, finished = rules.extend(live, finished, logits)
        goes_on = rules.goes_on(live, finished, max_lengths).cpu()  # the one wait for the device
        if not goes_on.all():
            on, over = (which.nonzero()[:, 0].to(live.rows.device) for which in (goes_on, ~goes_on))
            ended.append((sentences[over], [pool.of(over) for pool in (finished, live, before)]))
            sentences, max_lengths = sentences[on], max_lengths[on]
            live, finished = live.of(on), finished.of(on)

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


def _length_penalty(lengths: Tensor, alpha: float) -> Float[Tensor, " lengths"]:
    """((5 + length) / 6)^alpha for every length from 0 to the longest of these."""
    shortest, longest = (int(length) for length in lengths.aminmax())
    if shortest < 1:
        raise ValueError(f"a maximum length of {shortest} has no room for </s>: it is at least 1")
    every = torch.arange(longest + 1, dtype=torch.float64)
    return ((5 + every) / 6).pow(alpha).float().to(lengths.device)


@dataclass(frozen=True)
class _Rules:
    """One step of the search, for all sentences at once."""

    beam: int
    penalty: Float[Tensor, " lengths"]
    bos: int
    eos: int
    pad: int

    def extend(
        self, live: Hypotheses, finished: Hypotheses, logits: Float[Tensor, "rows vocabulary"]
    ) -> tuple[Hypotheses, Hypotheses]:
        """The live hypotheses, one token longer, and the best of all that have finished."""
        candidates = self._continuations(live, logits)
        final = candidates.tokens[..., -1] == self.eos
        return (
            candidates.only(~final).best(self.beam),
            finished.beside(candidates.only(final), self.pad).best(self.beam),
        )

    def goes_on(
        self, live: Hypotheses, finished: Hypotheses, max_lengths: Int[Tensor, " sentences"]
    ) -> Bool[Tensor, " sentences"]:
        """Whether a sentence has room, and a live hypothesis that may still enter the finished."""
        # A log p only falls; the longest length, which divides it by most, bounds the score.
        bound = live.log_p[:, 0] / self.penalty[max_lengths]
        length = live.tokens.shape[-1] - 1
        return (bound > finished.score[:, -1]) & (length < max_lengths)

    def _continuations(
        self, live: Hypotheses, logits: Float[Tensor, "rows vocabulary"]
    ) -> Hypotheses:
        """The best 2 x beam hypotheses that are one token longer than the live ones."""
        sentences, beams = live.log_p.shape
        logits = logits.float()
        # Finite where nothing is possible: there all log p stay -inf instead of becoming NaN.
        totals = logits.logsumexp(dim=-1).clamp(min=torch.finfo(logits.dtype).min)
        logits = functional.pad(logits, (0, -logits.shape[1] % BLOCK), value=-torch.inf)
        for token in {self.bos, self.pad} - {self.eos}:
            logits[:, token] = -torch.inf
        count = 1 if self.beam == 1 else 2 * self.beam
        parents, tokens, log_p = _most_likely(
            live.log_p,
            logits.view(sentences, beams, -1),  # [rows, tokens] -> [sentences, beams, tokens]
            totals.view(sentences, beams),  # [rows] -> [sentences, beams]
            count,
        )
        prefixes = live.tokens.take_along_dim(parents.unsqueeze(-1), dim=1)
        longer = torch.cat([prefixes, tokens.unsqueeze(-1)], dim=-1)
        rows = parents + beams * torch.arange(sentences, device=parents.device).unsqueeze(-1)
        return Hypotheses(longer, rows, log_p, log_p / self.penalty[longer.shape[-1] - 1])


def _most_likely(
    live: Float[Tensor, "sentences beams"],
    logits: Float[Tensor, "sentences beams tokens"],
    totals: Float[Tensor, "sentences beams"],
    count: int,
) -> tuple[
    Int[Tensor, "sentences count"], Int[Tensor, "sentences count"], Float[Tensor, "sentences count"]
]:
    """Beam, token and log p of the `count` largest live + (logits - totals), largest first.

    To rank them all would be slow. They are in the `count` blocks that have the largest maxima.
    """
    width = logits.shape[-1]
    maxima = logits.view(*live.shape, -1, BLOCK).amax(
        dim=-1
    )  # -> [sentences, beams, blocks of one]
    maxima = live.unsqueeze(-1) + (maxima - totals.unsqueeze(-1))
    blocks = _ranking(maxima.flatten(1), count).sort(dim=1).values  # [sentences, blocks]
    places = blocks.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=blocks.device)
    places = places.flatten(1)  # [sentences, blocks, BLOCK] -> [sentences, blocks * BLOCK]
    beams = places // width
    log_p = logits.flatten(1).gather(1, places) - totals.gather(1, beams)
    log_p = live.gather(1, beams) + log_p
    best = _ranking(log_p, count)
    return beams.gather(1, best), (places % width).gather(1, best), log_p.gather(1, best)


def _ranking(
    values: Float[Tensor, "sentences values"], count: int
) -> Int[Tensor, "sentences count"]:
    """Where the `count` largest are, largest first; of equals the first, unlike topk's any."""
    return values.sort(dim=1, descending=True, stable=True).indices[:, :count]
