"""A second search, for translations that look wrong: it has a wider beam, and avoids repetition."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.data.rows import Rows
from regard.decoding import Searchable
from regard.hypotheses import Hypothesis
from regard.recipe import MOST_STEPPED, WIDEST_BEAM, SearchRecipe
from regard.search import search
from regard.text.tokenizer import EOS, PAD
from regard.translation import Translation, Translator

WIDER = 2
"""The beam of the second search is this many times as wide as the beam of the first search, but not
wider than a recipe allows."""
ALPHA = 1.0
"""The least exponent of the length penalty in the second search. A larger exponent favours longer
outputs, which helps if the first translation was truncated."""
LONGEST_PERIOD = 8
"""A group of at most this many pieces must not come three times in a row."""


def wider_search(recipe: SearchRecipe) -> SearchRecipe:
    """The settings of the second search, if `recipe` has those of the first.

    The beam is WIDER times as wide, but not wider than a recipe allows. The exponent of the length
    penalty is at least ALPHA.
    """
    widest = min(WIDEST_BEAM, MOST_STEPPED // recipe.max_extra)
    beam = min(WIDER * recipe.beam, widest)
    return recipe.but(beam=beam, alpha=max(recipe.alpha, ALPHA))


def search_again(translator: Translator, sentences: Sequence[str]) -> list[list[Translation]]:
    """Translate again; no group of 1 to LONGEST_PERIOD pieces comes three times in a row.

    Returns the translations of each sentence, in the order of the second search. Their scores have
    the length penalty of the first search, so that all scores can be compared. A sentence must have
    at most `translator.longest` pieces, </s> included.
    """
    # The wider beam is set in a copy of the translator, because the method `hypotheses` divides
    # sentences into batches by the beam of the translator that it is called on.
    wider = copy(translator)
    wider.recipe = wider_search(translator.recipe)

    def search_batch(rows: Rows, limits: Tensor, _: list[int]) -> list[list[Hypothesis]]:
        model, recipe = WithoutRepetition(wider.model), wider.recipe
        found = search(model, rows, limits, recipe, by=wider.model.by, n_best=recipe.beam)
        return [[_scored(one, translator.recipe) for one in best] for best in found]

    sources = [[*pieces, EOS] for pieces in translator.tokenizer.encode(sentences)]
    return [translator.texts(best) for best in wider.hypotheses(sources, search_batch)]


def _scored(found: Hypothesis, recipe: SearchRecipe) -> Hypothesis:
    """The hypothesis with another score, computed with the length penalty of `recipe`."""
    penalty = recipe.length_penalty(len(found.tokens) + found.finished)
    return replace(found, score=found.log_probability / penalty)


@dataclass(frozen=True)
class Remembering:
    """The decoding state of a model, and the tokens written so far."""

    state: Any
    tokens: Tensor
    """[rows, length] Token ids from <s> on."""

    def select(self, rows: Tensor) -> Remembering:
        """The state and the tokens of the rows with the numbers `rows`, in this order."""
        return Remembering(self.state.select(rows), self.tokens[rows.flatten()])


class WithoutRepetition:
    """A model that never writes a group of one to LONGEST_PERIOD pieces three times in a row."""

    def __init__(self, model: Searchable):
        self.model = model

    def start(self, source: Rows) -> Remembering:
        """The state before the first token."""
        rows = len(source.ids)
        return Remembering(self.model.start(source), source.ids.new_empty(rows, 0))

    def step(self, tokens: Tensor, state: Remembering) -> tuple[Tensor, Remembering]:
        """Logits of the next token, and the next state.

        A token that would complete three equal groups of pieces in a row gets the logit -inf. The
        probability of this token is given to <pad>, which is never selected, so that the
        probabilities of all other tokens stay unchanged.
        """
        logits, inner = self.model.step(tokens, state.state)
        written = torch.cat([state.tokens, tokens.unsqueeze(1)], dim=1)
        logits = logits.float()
        total = torch.logsumexp(logits, dim=1)
        logits = logits.clone()
        logits[:, PAD] = -torch.inf
        for period in range(1, min(LONGEST_PERIOD, (written.shape[1] + 1) // 3) + 1):
            # Each of the last `recent` tokens may equal the token `period` places before it. If the
            # next token then does so, too, the next token completes the third copy of a group.
            recent = 2 * period - 1
            same = (written[:, -recent:] == written[:, -recent - period : -period]).all(dim=1)
            forbidden = written[:, -period].unsqueeze(1)
            barred = logits.gather(1, forbidden).masked_fill(same.unsqueeze(1), -torch.inf)
            logits.scatter_(1, forbidden, barred)
        share = torch.exp(torch.logsumexp(logits, dim=1) - total)
        logits[:, PAD] = total + torch.log1p(-share.clamp(max=1.0))
        return logits, Remembering(inner, written)
