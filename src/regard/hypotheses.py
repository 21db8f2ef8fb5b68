"""Hypotheses of a search (§6.1): as tensors on the device, and as results on the host."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.equations import Ranking
from regard.errors import ModelError

Rank = Callable[[Tensor, int], Tensor]
"""A function that takes the same arguments as `ranking` and returns the same indices."""
UNWRITTEN = -1
"""The number that stands for a token that is not written yet; it is not the id of any token."""


def ranking(
    values: Float[Tensor, "sentences values"], count: int
) -> Int[Tensor, "sentences count"]:
    """The indices of the `count` largest values, largest first; equal values keep their order.

    If there are fewer values, all are ranked. NaN counts as the largest value. `values` must be in
    fp32: the bits of a value and its index are joined into one integer, so that no two integers
    are equal.
    """
    # Equal values must have equal bits: -0 becomes 0, and every NaN becomes the same NaN.
    values = (values + 0.0).masked_fill(values.isnan(), torch.nan)
    bits = values.view(torch.int32)
    # The smaller a negative float, the larger the integer in its last 31 bits: invert these bits.
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()
    places = torch.arange(values.shape[1], device=values.device)
    count = min(count, values.shape[1])
    return ((ordered << 32) - places).topk(count, dim=1).indices


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search, without <s> and </s>."""

    tokens: tuple[int, ...]
    score: float
    """log P(y | x) divided by the length penalty."""
    log_probability: float
    """log P(y | x) (natural logarithm); if the hypothesis ends in </s>, </s> is included."""
    finished: bool
    """Whether the hypothesis ends in </s>. If not, it has the maximum length, or no token can
    follow the last one."""


class Hypotheses(NamedTuple):
    """Hypotheses of several sentences; `best` sorts the hypotheses of each sentence by score.

    Every sentence has the same number of places, each for one hypothesis. In a place without a
    hypothesis, `log_p` and `score` are -inf.
    """

    tokens: Int[Tensor, "sentences places length"]
    """Tokens from <s> on; `UNWRITTEN` after the last token of a hypothesis."""
    rows: Int[Tensor, "sentences places"]
    """For each hypothesis, the row of the model's state that it continues."""
    log_p: Float[Tensor, "sentences places"]
    score: Float[Tensor, "sentences places"]

    @staticmethod
    def filled(sentences: int, token: int, log_p: Float[Tensor, " places"]) -> Hypotheses:
        """For each sentence and each value in `log_p`, a hypothesis whose only token is `token`.

        The value is both the log p and the score of this hypothesis.
        """
        rows = torch.arange(sentences, device=log_p.device).unsqueeze(1).repeat(1, len(log_p))
        tokens = rows.new_full((*rows.shape, 1), token)
        return Hypotheses(tokens, rows, log_p.repeat(sentences, 1), log_p.repeat(sentences, 1))

    @staticmethod
    def joined(parts: Sequence[Hypotheses]) -> Hypotheses:
        """Join the hypotheses of several groups of sentences, one group after another."""
        places, length = (max(part.tokens.shape[dim] for part in parts) for dim in (1, 2))
        wide = []
        for part in parts:
            more = places - part.tokens.shape[1]
            tokens = F.pad(
                part.tokens, (0, length - part.tokens.shape[2], 0, more), value=UNWRITTEN
            )
            numbers = (F.pad(x, (0, more), value=-math.inf) for x in (part.log_p, part.score))
            wide.append(Hypotheses(tokens, F.pad(part.rows, (0, more)), *numbers))
        return Hypotheses(*map(torch.cat, zip(*wide, strict=True)))

    def only(self, these: Bool[Tensor, "sentences places"]) -> Hypotheses:
        """Keep the hypotheses where `these` is True; set log p and score of all others to -inf."""
        log_p, score = (field.masked_fill(~these, -torch.inf) for field in (self.log_p, self.score))
        return Hypotheses(self.tokens, self.rows, log_p, score)

    def instead_of(self, others: Hypotheses, where: Bool[Tensor, "sentences 1"]) -> Hypotheses:
        """Take `self` for sentences where `where` is True, and `others` for other sentences."""
        tokens = torch.where(where.unsqueeze(-1), self.tokens, others.tokens)
        mine, theirs = self[1:], others[1:]
        fields = (torch.where(where, x, y) for x, y in zip(mine, theirs, strict=True))
        return Hypotheses(tokens, *fields)

    def with_room(self, steps: int) -> Hypotheses:
        """A copy of these hypotheses with `steps` more tokens at the end, which are UNWRITTEN."""
        return self._replace(tokens=F.pad(self.tokens, (0, steps), value=UNWRITTEN))

    def beside(self, others: Hypotheses) -> Hypotheses:
        """Append other hypotheses of the same sentences to these hypotheses."""
        return Hypotheses(*(torch.cat(both, dim=1) for both in zip(self, others, strict=True)))

    def best(self, count: int, rank: Rank = ranking) -> Hypotheses:
        """The `count` best hypotheses of each sentence, best first; ties keep their order."""
        places = rank(self.score, count)
        tokens = self.tokens.take_along_dim(places.unsqueeze(-1), dim=1)
        return Hypotheses(tokens, *(field.gather(1, places) for field in self[1:]))

    def of(self, sentences: Int[Tensor, " fewer"]) -> Hypotheses:
        """The hypotheses of the sentences with these indices."""
        return Hypotheses(*(field[sentences] for field in self))

    def first(self, count: int) -> Hypotheses:
        """The first `count` hypotheses of each sentence, in the order in which they are stored."""
        return Hypotheses(*(field[:, :count] for field in self))

    def read(self, eos: int) -> list[list[Hypothesis]]:
        """Copy the hypotheses of each sentence to the host, except those whose log p is -inf.

        `eos` is the id of </s>. Raises ModelError if a log p is NaN.
        """
        numbers = torch.stack([self.log_p, self.score]).cpu()
        if numbers[0].isnan().any():
            raise ModelError("the model's logits are NaN or infinite: its weights are damaged")
        log_p, score = numbers.tolist()
        fields = (self.tokens[..., 1:].tolist(), log_p, score)
        return [
            [_hypothesis(*one, eos) for one in zip(*places, strict=True) if one[1] > -math.inf]
            for places in zip(*fields, strict=True)
        ]


def _hypothesis(tokens: list[int], log_p: float, score: float, eos: int) -> Hypothesis:
    body = tuple(itertools.takewhile(lambda token: token not in (eos, UNWRITTEN), tokens))
    return Hypothesis(body, score, log_p, finished=eos in tokens)


class Choosing(NamedTuple):
    """The rules by which `choose_best` chooses; they stay the same in all steps of a search."""

    beam: int
    finish_by_beam: bool
    """Whether `search.finish` is "beam"; see `regard.search`."""
    eos: int
    penalty: Float[Tensor, " lengths"]
    """The length penalty of each length."""


class Chosen(NamedTuple):
    """The hypotheses after a step; see `choose_best`."""

    live: Hypotheses
    finished: Hypotheses
    going: Bool[Tensor, " sentences"]
    """True for each sentence whose search goes on."""


def choose_best(
    candidates: Hypotheses,
    finished: Hypotheses,
    max_lengths: Int[Tensor, " sentences"],
    length: Int[Tensor, " one"],
    rules: Choosing,
    rank: Rank,
) -> Chosen:
    """Choose the candidates that stay alive, and the best of all hypotheses that have finished.

    `candidates` are the continuations of a step, best first; the index of their last token is
    `length`. The search of a sentence goes on if `length` is below the sentence's maximum length
    and a live hypothesis may still become one of the sentence's best finished hypotheses. `rank` is
    `ranking`, or computes the same.
    """
    beam = rules.beam
    final = candidates.tokens.index_select(-1, length).squeeze(-1) == rules.eos
    live = candidates.only(~final).best(beam, rank)
    if rules.finish_by_beam:
        final = final | (max_lengths == length).unsqueeze(1)
        final[:, beam:] = False
    finished = finished.beside(candidates.only(final)).best(beam, rank)
    # No live hypothesis can ever score above `bound`: log p is negative and only falls, and no
    # penalty is larger than that of the maximum length. If `finish_by_beam` is True, `bound` uses
    # the penalty of the present length, and is therefore only a guess.
    longest = length if rules.finish_by_beam else max_lengths
    bound = live.log_p[:, 0] / rules.penalty.index_select(0, longest)
    return Chosen(live, finished, (bound > finished.score[:, -1]) & (length < max_lengths))


def most_likely(
    live: Float[Tensor, "sentences beams"],
    logits: Float[Tensor, "rows vocabulary"],
    never: tuple[int, ...],
    count: int,
) -> Ranking:
    """The `count` most likely continuations of each sentence, by live + log softmax(logits).

    `live` is log P of each hypothesis (§6.1); each row of `logits` belongs to one hypothesis. The
    most likely continuation is first. Equally likely continuations are in the order of their
    hypotheses, then of their tokens. Tokens in `never`, and all tokens of a row whose logits are
    all -inf, have the log-probability -inf: they are returned only if there are too few others.
    """
    vocabulary, beams = logits.shape[1], live.shape[1]
    log_p = logits.float().log_softmax(-1)
    log_p = log_p.masked_fill((logits == -torch.inf).all(-1, keepdim=True), -torch.inf)
    log_p[:, list(never)] = -torch.inf
    # [rows, vocabulary] -> [sentences, beams * vocabulary]
    log_p = (live.unsqueeze(-1) + log_p.unflatten(0, (-1, beams))).flatten(1)
    best = ranking(log_p, count)
    return Ranking(best // vocabulary, best % vocabulary, log_p.gather(1, best))
