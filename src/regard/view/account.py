"""An account of a beam search: the fate of each candidate at each step, and why the result won.

A candidate is one of the best continuations of the hypotheses at a step.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from torch import Tensor

from regard.errors import printable
from regard.hypotheses import Hypotheses
from regard.recipe import SearchRecipe
from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import EOS
from regard.view.pieces import labels

Fate = Literal["lives", "dies", "dropped", "finished", "too low", "left"]
"""The fate of a candidate.

    lives      it is kept, and at least one of its continuations is kept, too
    dies       it is kept, but none of its continuations is kept
    dropped    it does not end in </s>, and is not among the `beam` best candidates without </s>
    finished   it ends in </s>, and is among the `beam` best hypotheses that have finished so far;
               with search.finish = "beam", also if it has the maximum length and no </s>
    too low    it ends in </s>, but is not among the `beam` best hypotheses that have finished so
               far; with search.finish = "beam", also if it is not among the `beam` best candidates
    left       it was still live when the search ended
"""


@dataclass(frozen=True)
class Candidate:
    """One of the best continuations of the sentence's hypotheses at one step.

    A step has at most 2 x beam candidates; with a beam of 1, it has one.
    """

    text: str
    piece: str
    """The last piece of the candidate."""
    log_p: float
    """The natural logarithm of the candidate's probability."""
    score: float
    """log p divided by the length penalty."""
    fate: Fate
    wins: bool
    """Whether the translation begins with this candidate, or equals it."""


@dataclass(frozen=True)
class Account:
    """The steps of the search for one sentence, why the search ended, and why its result won."""

    steps: tuple[tuple[Candidate, ...], ...]
    """The candidates of each step, best first."""
    ending: str
    """Why the search ended after these steps, as text for the user."""
    why: str
    """Why the search chose its result, as text for the user."""

    def as_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        lines = []
        for number, step in enumerate(self.steps, 1):
            lines.append(f"step {number}")
            for one in step:
                mark = "*" if one.wins else " "
                lines.append(
                    f" {mark} {one.fate:9}{one.log_p:9.3f}{one.score:9.3f}  "
                    f"{one.text} [{one.piece}]"
                )
        return "\n".join([*lines, self.ending, self.why])


class _Path(NamedTuple):
    tokens: tuple[int, ...]  # without <s>; with </s> if the hypothesis has ended
    log_p: float
    score: float


class SearchRecorder:
    """A `regard.search.StepListener` that records every step of the search for one sentence."""

    def __init__(self) -> None:
        self._steps: list[tuple[list[_Path], list[_Path], list[_Path]]] = []

    def __call__(
        self, _: Tensor, candidates: Hypotheses, live: Hypotheses, finished: Hypotheses
    ) -> None:
        """Record one step, as a `regard.search.StepListener`."""
        self._steps.append((_paths(candidates), _paths(live), _paths(finished)))

    def account(self, tokenizer: AnyTokenizer, recipe: SearchRecipe, longest: int) -> Account:
        """An account of the recorded search; `longest` is the maximum length, </s> included."""
        _, live, finished = self._steps[-1]
        final = self._final()
        best = final[0]
        steps = []
        for number, (candidates, alive, kept) in enumerate(self._steps):
            after = self._steps[number + 1][1:] if number + 1 < len(self._steps) else None
            texts = tokenizer.decode([path.tokens for path in candidates])
            pieces = [labels(tokenizer.names(path.tokens, "target"))[-1] for path in candidates]
            steps.append(
                tuple(
                    Candidate(
                        printable(text),
                        piece,
                        round(path.log_p, 6),
                        round(path.score, 6),
                        _fate(path, alive, kept, after),
                        wins=best.tokens[: len(path.tokens)] == path.tokens,
                    )
                    for path, text, piece in zip(candidates, texts, pieces, strict=True)
                )
            )
        return Account(
            tuple(steps),
            _ending(live, finished, recipe, longest),
            self._why(final, tokenizer, recipe),
        )

    def _final(self) -> list[_Path]:
        """The hypotheses from which the search chose its result, the best first.

        They are from the last step that has finished or live hypotheses: the finished ones or, if
        there are none, the live ones. If no step has any, the result is one empty hypothesis.
        """
        pools = (finished or live for _, live, finished in reversed(self._steps))
        return next(filter(None, pools), [_Path((), 0.0, 0.0)])

    def _why(self, final: list[_Path], tokenizer: AnyTokenizer, recipe: SearchRecipe) -> str:
        best = final[0]
        texts = [printable(text) for text in tokenizer.decode([path.tokens for path in final])]
        said = f'"{texts[0]}" won with {_sum(best, recipe)}.'
        if len(final) > 1:
            second = final[1]
            said += f' The next, "{texts[1]}", has {_sum(second, recipe)}'
            said += (
                ": it is more probable, but shorter."
                if second.log_p > best.log_p
                else f": it is {_exponential(best.log_p - second.log_p)} times less probable."
            )
        places = [
            (place, number)
            for number, (_, live, _) in enumerate(self._steps, 1)
            for place, path in enumerate(live, 1)
            if best.tokens[: len(path.tokens)] == path.tokens
        ]
        place, number = max(places, default=(1, 0), key=lambda found: found[0])
        if place > 1:
            other = tokenizer.decode([self._steps[number - 1][1][0].tokens])[0]
            said += (
                f" After step {number} the beginning of the winner ranked {place} among the live "
                f'hypotheses; the first was "{printable(other)}".'
            )
        return said


def _paths(hypotheses: Hypotheses) -> list[_Path]:
    """The hypotheses of the batch's only sentence, without <s> and without tokens after </s>.

    Places of the beam that hold no hypothesis are left out.
    """
    fields = hypotheses.tokens, hypotheses.log_p, hypotheses.score
    found = []
    for tokens, log_p, score in zip(*(field[0].tolist() for field in fields), strict=True):
        if log_p > -math.inf:
            body = tokens[1:]
            body = body[: body.index(EOS) + 1] if EOS in body else body
            found.append(_Path(tuple(body), log_p, score))
    return found


def _fate(
    path: _Path,
    alive: list[_Path],
    kept: list[_Path],
    after: tuple[list[_Path], list[_Path]] | None,
) -> Fate:
    if path in kept:
        return "finished"
    if path.tokens[-1] == EOS:
        return "too low"
    if path not in alive:
        return "dropped"
    if after is None:
        return "left"
    going = any(other.tokens[:-1] == path.tokens for others in after for other in others)
    return "lives" if going else "dies"


def _exponential(x: float) -> str:
    """e^x as text, with three digits; as a power of ten if a float cannot hold it."""
    return f"{math.exp(x):.3g}" if x < 700 else f"10^{x / math.log(10):.0f}"


def _sum(path: _Path, recipe: SearchRecipe) -> str:
    length = len(path.tokens)
    pieces = "1 piece" if length == 1 else f"{length} pieces"
    return (
        f"{path.score:.3f} = {path.log_p:.3f} / {recipe.length_penalty(length):.3f} "
        f"(log p / length penalty of {pieces})"
    )


def _ending(live: list[_Path], finished: list[_Path], recipe: SearchRecipe, longest: int) -> str:
    if not live and not finished:
        return "The search ended because no token could follow."
    if not live:
        only = "</s> was the best continuation"
        ended = only if recipe.beam == 1 else "every candidate ended in </s>"
        return f"The search ended because {ended}."
    if len(live[0].tokens) >= longest:
        return f"The search ended at the longest output allowed, {longest} pieces."
    ended = (
        f"The search ended with {len(finished)} finished hypotheses, the worst with a score of "
        f"{finished[-1].score:.3f}: the best live one "
    )
    if recipe.finish == "beam":
        return f"{ended}had {live[0].score:.3f}."
    bound = live[0].log_p / recipe.length_penalty(longest)
    return (
        f"{ended}could reach at most {bound:.3f}, at the longest output allowed, {longest} pieces."
    )
