"""§6.1: "We used beam search with a beam size of 4 and length penalty alpha = 0.6."

A hypothesis y has the score log P(y | x) / ((5 + |y|) / 6)^alpha, where |y| counts </s> (Wu et al.
2016, equation 14). At each step, the 2 x beam best continuations of a sentence (with beam 1, the
best one) are its candidates. Candidates that end in </s> are set aside as finished, and the best
`beam` of the others stay live. A model to search needs only `start` and `step` (`Steppable`). A
granule is a group of steps after which the host looks at the results (`regard.granules`).

With `search.finish = "beam"`, the search is that of the library transformers. A candidate is set
aside as finished only if it is among the best `beam` candidates, and ends in </s> or has the
maximum length. A sentence ends when it has `beam` finished hypotheses, and the score of each of
them is at least the score that the best live hypothesis has at the present length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.equations import Arithmetic
from regard.errors import RecipeError
from regard.granules import ONE_STEP, occupied, with_room
from regard.hypotheses import Choosing, Hypotheses, Hypothesis
from regard.recipe import SearchRecipe
from regard.text.tokenizer import BOS, EOS, PAD

LEAVE_AT = 0.9
"""Ended sentences are removed from a batch as soon as at most this share of its sentences goes on.
They are not removed one at a time, because each removal copies the rest of the batch."""


class Selectable(Protocol):
    """The state of a model, with one row for each hypothesis: row = sentence * beams + beam."""

    def select(self, rows: Int[Tensor, "sentences beams"]) -> Self:
        """A new state that has these rows of this state.

        `rows[s]` are the rows of the new state's sentence s; in this state, all of them belong to
        one sentence. The new state may have fewer sentences, in the same order, and more beams.
        """


Source = TypeVar("Source", contravariant=True)
State = TypeVar("State", bound=Selectable)


class Steppable(Protocol[Source, State]):
    """A model to search: it computes the next token's logits from a source and earlier tokens."""

    def start(self, source: Source, /) -> State:
        """The state before the first token, with one row for each sentence."""

    def step(
        self, tokens: Int[Tensor, " rows"], state: State, /
    ) -> tuple[Float[Tensor, "rows vocabulary"], State]:
        """The logits of the next token, -inf for impossible tokens, and the state after `tokens`.

        `tokens` has the last token of each row. A row may have no hypothesis, for example if its
        sentence has ended: its token is then the padding token, and its logits are not used.
        """


StepListener = Callable[[Int[Tensor, " sentences"], Hypotheses, Hypotheses, Hypotheses], None]
"""A function that is called after each step. Its arguments are the indices of the sentences that
took part in the step, their candidates, and their live and finished hypotheses after the step. A
sentence that has ended may take part in a few more steps, without a live hypothesis."""


@torch.inference_mode()
def search(
    model: Steppable[Source, State],
    source: Source,
    max_lengths: Int[Tensor, " sentences"],
    recipe: SearchRecipe,
    *,
    by: Arithmetic,
    n_best: int = 1,
    bos: int = BOS,
    eos: int = EOS,
    pad: int = PAD,
    listen: StepListener | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of highest score for each sentence, the best first.

    A sentence ends at its maximum length, when no token can follow, or when it has `beam` finished
    hypotheses and no live hypothesis can reach a higher score than the worst finished one. The
    docstring of this module tells how `recipe.finish = "beam"` ends a sentence. The result of a
    sentence is its finished hypotheses, possibly fewer than `n_best`. If no hypothesis has
    finished, the result is the live hypotheses or, if no token could follow them, the last live
    hypotheses that the sentence had. With beam 1, only the best continuation is considered: this is
    greedy search. Equally likely continuations are in the order of their hypotheses, then of their
    tokens.

    `max_lengths` counts </s>, is at least 1, and is on the model's device. `bos` and `pad` are
    never produced. `by` ranks and chooses hypotheses. `listen` is called after every step. After
    each granule of steps (`by.granule`), or with `listen` after each step, the host checks which
    sentences have ended; the granule does not change the results. Raises RecipeError if `n_best` is
    not between 1 and the beam, ValueError if a maximum length is below 1, ModelError if a log p is
    NaN.
    """
    if not 1 <= n_best <= recipe.beam:
        raise RecipeError(f"n_best = {n_best} must lie between 1 and beam = {recipe.beam}")
    if not len(max_lengths):
        return []
    granule = by.granule.suiting(model) if listen is None else ONE_STEP
    unseen = granule.steps > 1
    penalty = _length_penalties(max_lengths, recipe)
    rules = Rules(model, recipe, penalty, by, bos, eos, pad)
    beams = rules.begin(model.start(source), max_lengths, recipe.beam if unseen else 1)
    host, left = _Host(len(max_lengths), n_best), len(penalty) - 1
    known: Iterator[int] = repeat(0)
    while len(host.sentences):
        steps = min(granule.steps, left)
        if unseen:
            beams = granule.run(rules, beams.for_granule(steps, known), steps)
        else:
            beams = rules.step(beams.for_step())
        left -= steps
        if listen is not None and beams.candidates is not None:
            listen(host.sentences, beams.candidates, beams.live, beams.finished)
        goes_on, known = _look(beams.going, occupied(beams.state) if unseen else [])
        beams = host.without_ended(beams, goes_on)
    return host.results(eos)


def _look(going: Tensor, numbers: list[Tensor]) -> tuple[Bool[Tensor, " sentences"], Iterator[int]]:
    """Copy `going` and `numbers`, the result of `granules.occupied`, to the host; return both.

    In granules of several steps, a search waits for a GPU only here, and at its start and end.
    """
    if not numbers:
        return going.cpu(), iter(())
    read = torch.cat([going.long(), torch.stack(numbers)]).cpu()
    return read[: len(going)].bool(), iter(read[len(going) :].tolist())


class _Host:
    """The host's part of a search: which sentences go on, and the results of ended sentences."""

    def __init__(self, sentences: int, n_best: int):
        self.sentences, self.n_best = torch.arange(sentences), n_best
        self._going = torch.ones(sentences, dtype=torch.bool)
        self._ended: list[tuple[Tensor, list[Hypotheses]]] = []

    def without_ended(self, beams: _Beams, goes_on: Bool[Tensor, " sentences"]) -> _Beams:
        """Keep the results of sentences that have ended; return the beams for the next steps.

        If many sentences have ended (see `LEAVE_AT`), the returned beams lack the ended sentences.
        This method does not wait for a GPU.
        """
        device = beams.going.device
        if not torch.equal(goes_on, self._going):
            ends = (self._going & ~goes_on).nonzero()[:, 0]
            found = beams.results(ends.to(device, non_blocking=True), self.n_best)
            self._ended.append((self.sentences[ends], found))
            beams = beams._replace(live=beams.live.only(beams.going.unsqueeze(1)))
            self._going = goes_on
        if int(goes_on.sum()) <= LEAVE_AT * len(goes_on):
            stays = goes_on.nonzero()[:, 0]
            self.sentences, self._going = self.sentences[stays], goes_on[stays]
            beams = beams.of(stays.to(device, non_blocking=True))
        return beams

    def results(self, eos: int) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, from its first pool that is not empty.

        `_Beams.results` lists the pools.
        """
        numbers = torch.cat([sentences for sentences, _ in self._ended]).tolist()
        pools = zip(*(pools for _, pools in self._ended), strict=True)
        choices = zip(*(Hypotheses.joined(pool).read(eos) for pool in pools), strict=True)
        best = {n: next(filter(None, choice)) for n, choice in zip(numbers, choices, strict=True)}
        return [best[number] for number in sorted(best)]


def _length_penalties(lengths: Tensor, recipe: SearchRecipe) -> Float[Tensor, " lengths"]:
    """The length penalty of every length from 0 to the largest of `lengths`.

    Raises ValueError if one of `lengths` is below 1.
    """
    shortest, longest = (int(length) for length in lengths.aminmax())
    if shortest < 1:
        raise ValueError(f"a maximum length of {shortest} has no room for </s>: it is at least 1")
    # Python computes one penalty at a time: vector instructions may change the last bit.
    every = [recipe.length_penalty(length) for length in range(longest + 1)]
    return torch.tensor(every, dtype=torch.float32, device=lengths.device)


class _Beams(NamedTuple):
    """The hypotheses of a search after some steps, and the model's state.

    `live.rows` names the rows of `state` that the live hypotheses continue: the next step selects
    them. All tensors are on the device. `length` is the number of tokens written, without <s>.
    """

    state: Any
    max_lengths: Int[Tensor, " sentences"]
    length: Int[Tensor, " one"]
    live: Hypotheses
    finished: Hypotheses
    before: Hypotheses
    """The live hypotheses before the last step or, in a granule of several steps, the last live
    hypotheses that each sentence had. They are the results of a sentence that has neither finished
    nor live hypotheses."""
    going: Bool[Tensor, " sentences"]
    candidates: Hypotheses | None = None

    def for_step(self) -> _Beams:
        """Make room for one more token in each hypothesis."""
        return self._replace(live=self.live.with_room(1), finished=self.finished.with_room(1))

    def for_granule(self, steps: int, known: Iterator[int]) -> _Beams:
        """Select the rows of the live hypotheses, and make room for this many steps.

        `known` yields the results of `granules.occupied`, as numbers on the host.
        """
        rows = self.live.rows
        live, finished, before = (
            x.with_room(steps) for x in (self.live, self.finished, self.before)
        )
        return self._replace(
            state=with_room(self.state.select(rows), steps, known),
            live=live._replace(rows=torch.arange(rows.numel(), device=rows.device).view_as(rows)),
            finished=finished,
            before=before,
        )

    def of(self, sentences: Int[Tensor, " fewer"]) -> _Beams:
        """The beams of these sentences; the next step selects the sentences' rows of the state."""
        live, finished, before = (x.of(sentences) for x in (self.live, self.finished, self.before))
        return self._replace(
            max_lengths=self.max_lengths[sentences], live=live, finished=finished, before=before,
            going=self.going[sentences],
        )  # fmt: skip

    def results(self, sentences: Int[Tensor, " some"], count: int) -> list[Hypotheses]:
        """Three pools of at most `count` hypotheses for each of these sentences.

        The pools are the finished, the live and the `before` hypotheses. The results of a sentence
        are in the first pool that has a hypothesis of this sentence.
        """
        pools = self.finished, self.live, self.before
        return [pool.of(sentences).first(count) for pool in pools]


@dataclass(frozen=True)
class Rules:
    """The rules of a search; `step` makes one step for all sentences at once."""

    model: Steppable[Any, Any]
    recipe: SearchRecipe
    penalty: Float[Tensor, " lengths"]
    by: Arithmetic
    bos: int
    eos: int
    pad: int

    @property
    def count(self) -> int:
        """The number of candidates of a sentence."""
        return 1 if self.recipe.beam == 1 else 2 * self.recipe.beam

    @property
    def never(self) -> tuple[int, ...]:
        """The tokens that are never produced: `bos` and `pad`, except one that equals `eos`."""
        return tuple({self.bos, self.pad} - {self.eos})

    @property
    def choosing(self) -> Choosing:
        """The rules for `Arithmetic.choose`."""
        return Choosing(self.recipe.beam, self.recipe.finish == "beam", self.eos, self.penalty)

    def begin(self, state: Any, max_lengths: Int[Tensor, " sentences"], places: int) -> _Beams:
        """The beams before the first step: each sentence has one live hypothesis, <s>.

        There is room for `places` live hypotheses of each sentence; <s> is the first of them.
        """
        sentences = len(max_lengths)
        nothing = self.penalty.new_full((self.recipe.beam,), -torch.inf)
        first = nothing[:places].clone()
        first[:1].fill_(0.0)
        return _Beams(
            state,
            max_lengths,
            length=max_lengths.new_zeros(1),
            live=Hypotheses.filled(sentences, self.bos, first),
            finished=Hypotheses.filled(sentences, self.pad, nothing),
            before=Hypotheses.filled(sentences, self.bos, first),
            going=torch.ones_like(max_lengths, dtype=torch.bool),
        )

    def step(self, beams: _Beams) -> _Beams:
        """Add a token; `beams` must have room for it, and no live hypotheses of ended sentences."""
        live, length = beams.live, beams.length + 1
        last = live.tokens.index_select(-1, beams.length).squeeze(-1)
        last = last.masked_fill(live.log_p == -torch.inf, self.pad)
        logits, state = self.model.step(last.flatten(), beams.state.select(live.rows))
        candidates = self.continuations(live, logits, length)
        del logits  # the next lines can use the memory of the logits
        alive, finished, going = self.by.choose(
            candidates, beams.finished, beams.max_lengths, length, self.choosing
        )
        return _Beams(state, beams.max_lengths, length, alive, finished, live, going, candidates)

    def unseen_step(self, beams: _Beams) -> _Beams:
        """The beams after one more step, whose results the host does not look at.

        Nothing is added to sentences that have ended.
        """
        after = self.step(beams)
        live, going = after.live, beams.going.unsqueeze(1)
        some = going & (live.log_p[:, :1] != -torch.inf)
        return after._replace(
            live=live.only(after.going.unsqueeze(1)),
            before=live.instead_of(beams.before, some),
            candidates=None,
        )

    def continuations(
        self,
        live: Hypotheses,
        logits: Float[Tensor, "rows vocabulary"],
        length: Int[Tensor, " one"],
    ) -> Hypotheses:
        """The best 2 x beam hypotheses that are one token longer than the live hypotheses.

        With beam 1, only the best hypothesis is returned.
        """
        sentences, beams = live.log_p.shape
        parents, tokens, log_p = self.by.most_likely(live.log_p, logits, self.never, self.count)
        longer = live.tokens.take_along_dim(parents.unsqueeze(-1), dim=1)
        longer.index_copy_(-1, length, tokens.unsqueeze(-1))
        rows = parents + beams * torch.arange(sentences, device=parents.device).unsqueeze(-1)
        return Hypotheses(longer, rows, log_p, log_p / self.penalty.index_select(0, length))
