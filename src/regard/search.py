"""§6.1: "We used beam search with a beam size of 4 and length penalty alpha = 0.6."

A hypothesis y has the score log P(y | x) / ((5 + |y|) / 6)^alpha, where |y| counts </s> (Wu et al.
2016, equation 14). At each step the 2 x beam best continuations of a sentence are its candidates:
those that end in </s> are kept aside, the best `beam` of the others stay alive. Nothing here knows
what model it searches, only that one can step through it.
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

from regard.arithmetic.device import on_cpu
from regard.arithmetic.one_core import array, by_loops
from regard.errors import ModelError, RecipeError
from regard.recipe import SearchRecipe

BLOCK = 128
"""Candidates compared by their maximum before they are compared one by one."""
LEAVE_AT = 0.9
"""Ended sentences leave the batch once no more than this share goes on: to leave costs a copy."""
AT_ONCE = 2**20
"""Logits ranked at once on a CPU: 4 MiB in fp32."""
AT_ONCE_GPU = 2**27
"""And on a GPU: 512 MiB."""


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

        A row that holds no hypothesis is given the padding token, and its logits are not used; so
        are for some steps the rows of a sentence that has ended.
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


Listener = Callable[[Int[Tensor, " sentences"], Hypotheses, Hypotheses, Hypotheses], None]
"""Hears of a step: which sentences are in it, its candidates, then those alive and those finished
after it. A sentence that has ended may be in a few steps more, with no hypothesis alive."""


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
    listen: Listener | None = None,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of highest score for each sentence, best first.

    A sentence ends at its longest length, or when it has `beam` finished hypotheses and no live one
    could overtake the worst of them. It gets its finished hypotheses, perhaps fewer than `n_best`;
    if there are none, its live ones; if none of those could go on, the ones they grew from.

    Beam 1 considers the one best continuation, and so is greedy search. Of equal continuations that
    of the better hypothesis comes first, then the lower token: on every device, in every batch.

    `max_lengths` counts </s>, is at least 1, and lies on the model's device. `bos` and `pad` are
    never produced. `listen` hears of every step. Raises RecipeError if `n_best` is not between 1
    and the beam, ModelError if the model's logits are not numbers.
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
    going = torch.ones(len(sentences), dtype=torch.bool)  # on the host
    state = model.start(source)
    while len(sentences):
        last = live.tokens[..., -1].masked_fill(live.log_p == -torch.inf, pad)
        logits, state = model.step(last.flatten(), state.select(live.rows))
        before = live
        candidates = rules.continuations(live, logits)
        del logits  # the next ones take their place
        live, finished = rules.choose(candidates, finished)
        if listen is not None:
            listen(sentences, candidates, live, finished)
        goes_on = rules.goes_on(live, finished, max_lengths).cpu()  # the search waits here alone
        if not torch.equal(goes_on, going):
            ends = (going & ~goes_on).nonzero()[:, 0].to(live.rows.device)
            ended.append((sentences[ends], [pool.of(ends) for pool in (finished, live, before)]))
            going &= goes_on
            live = live.only(going.to(live.rows.device).unsqueeze(1))
        if int(going.sum()) <= LEAVE_AT * len(going):
            stays = going.nonzero()[:, 0].to(live.rows.device)
            sentences, max_lengths, going = sentences[stays], max_lengths[stays], going[going]
            live, finished = live.of(stays), finished.of(stays)

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
    # Number by number: a vector's powers and those of the few after it may differ in the last bit.
    every = [((5 + length) / 6) ** alpha for length in range(longest + 1)]
    return torch.tensor(every, dtype=torch.float32, device=lengths.device)


@dataclass(frozen=True)
class _Rules:
    """One step of the search, for all sentences at once."""

    beam: int
    penalty: Float[Tensor, " lengths"]
    bos: int
    eos: int
    pad: int

    def continuations(
        self, live: Hypotheses, logits: Float[Tensor, "rows vocabulary"]
    ) -> Hypotheses:
        """The best 2 x beam hypotheses that are one token longer than the live ones."""
        sentences, beams = live.log_p.shape
        count = 1 if self.beam == 1 else 2 * self.beam
        never = tuple({self.bos, self.pad} - {self.eos})
        parents, tokens, log_p = _most_likely(live.log_p, logits, never, count)
        prefixes = live.tokens.take_along_dim(parents.unsqueeze(-1), dim=1)
        longer = torch.cat([prefixes, tokens.unsqueeze(-1)], dim=-1)
        rows = parents + beams * torch.arange(sentences, device=parents.device).unsqueeze(-1)
        return Hypotheses(longer, rows, log_p, log_p / self.penalty[longer.shape[-1] - 1])

    def choose(self, candidates: Hypotheses, finished: Hypotheses) -> tuple[Hypotheses, Hypotheses]:
        """The best candidates that stay alive, and the best of all that have finished."""
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


def _most_likely(
    live: Float[Tensor, "sentences beams"],
    logits: Float[Tensor, "rows vocabulary"],
    never: tuple[int, ...],
    count: int,
) -> tuple[
    Int[Tensor, "sentences count"], Int[Tensor, "sentences count"], Float[Tensor, "sentences count"]
]:
    """Beam, token and log p of the `count` largest live + log softmax(logits), largest first.

    To rank them all would be slow. They are in the `count` blocks that have the largest maxima.
    """
    if by_loops():
        return _most_likely_by_loop(live, logits, never, count)
    vocabulary, beams = logits.shape[1], live.shape[1]
    # [rows, ...] -> [sentences, beams, ...]
    maxima, totals = (x.unflatten(0, (-1, beams)) for x in _summary(logits, never))
    maxima = live.unsqueeze(-1) + (maxima - totals.unsqueeze(-1))
    blocks = _ranking(maxima.flatten(1), count).sort(dim=1).values  # [sentences, blocks]
    # Every token of these blocks, by beam and token: [sentences, blocks * BLOCK]
    within = torch.arange(BLOCK, device=blocks.device)
    tokens = (blocks % maxima.shape[-1] * BLOCK).unsqueeze(-1) + within
    tokens, parents = tokens.flatten(1), (blocks // maxima.shape[-1]).repeat_interleave(BLOCK, 1)
    impossible = tokens >= vocabulary
    for token in never:
        impossible |= tokens == token
    places = parents * vocabulary + tokens.clamp(max=vocabulary - 1)
    chosen = logits.view(len(live), -1).gather(1, places).float()
    log_p = live.gather(1, parents) + (chosen - totals.gather(1, parents))
    log_p = log_p.masked_fill_(impossible, -torch.inf)
    best = _ranking(log_p, count)
    return parents.gather(1, best), tokens.gather(1, best), log_p.gather(1, best)


def _most_likely_by_loop(
    live: Float[Tensor, "sentences beams"],
    logits: Float[Tensor, "rows vocabulary"],
    never: tuple[int, ...],
    count: int,
) -> tuple[Tensor, Tensor, Tensor]:
    from regard.arithmetic.loops.search import most_likely

    parents, tokens = torch.empty(2, len(live), count, dtype=torch.int64).unbind()
    found = parents, tokens, torch.empty(len(live), count)
    without = torch.tensor(never, dtype=torch.int64)
    most_likely(*map(array, (live.contiguous(), logits.contiguous(), without, *found)))
    return found


def _summary(
    logits: Float[Tensor, "rows vocabulary"], never: tuple[int, ...]
) -> tuple[Float[Tensor, "rows blocks"], Float[Tensor, " rows"]]:
    """Of each row: the largest of each block, without the tokens `never`; and log sum exp, in fp32.

    Some rows at a time: on a CPU so that their numbers stay in its caches, on a GPU so that they
    have room.
    """
    some = max(1, (AT_ONCE if on_cpu(logits) else AT_ONCE_GPU) // logits.shape[1])
    maxima, totals = [], []
    for part in logits.split(some):
        x = part.float()
        largest = _block_maxima(x)
        top = largest.amax(dim=-1)
        total = top - x.log_softmax(dim=-1).amax(dim=-1)
        # Finite where nothing is possible: there all log p stay -inf instead of becoming NaN.
        totals.append(total.masked_fill_(top == -torch.inf, 0.0))
        maxima.append(largest)
    best = torch.cat(maxima)
    for block in {token // BLOCK for token in never}:
        tokens = logits[:, block * BLOCK : (block + 1) * BLOCK].to(torch.float32, copy=True)
        tokens[:, [t % BLOCK for t in never if t // BLOCK == block]] = -torch.inf
        best[:, block] = tokens.amax(dim=-1)
    return best, torch.cat(totals)


def _block_maxima(x: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, "rows blocks"]:
    """The largest of each block; the last block may be short."""
    whole = x.shape[1] - x.shape[1] % BLOCK
    largest = x[:, :whole].unflatten(1, (-1, BLOCK)).amax(dim=-1)
    if whole == x.shape[1]:
        return largest
    return torch.cat([largest, x[:, whole:].amax(dim=-1, keepdim=True)], dim=1)


def _ranking(
    values: Float[Tensor, "sentences values"], count: int
) -> Int[Tensor, "sentences count"]:
    """Where the `count` largest are, largest first; of equals the first, unlike topk's any.

    A number and its place together are one integer, which has no equal: NaN is the largest.
    """
    values = (values + 0.0).masked_fill(values.isnan(), torch.nan)  # of one sign, as is 0.0
    bits = values.view(torch.int32)
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()  # negative floats grow downwards
    places = torch.arange(values.shape[1], device=values.device)
    count = min(count, values.shape[1])
    return ((ordered << 32) - places).topk(count, dim=1).indices
