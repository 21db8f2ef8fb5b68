"""An ensemble: a search uses the mean of several models' probabilities (Sutskever et al. 2014)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.rows import Rows
from regard.encoder_decoder import EncoderDecoder
from regard.equations import Arithmetic


@dataclass(frozen=True)
class EnsembleState:
    """The decoding states of all models; row r is the same hypothesis in each state."""

    states: tuple[Any, ...]

    def select(self, rows: Int[Tensor, "sentences beams"]) -> EnsembleState:
        """Select these rows in the state of each model; see `search.Selectable.select`."""
        return EnsembleState(tuple(state.select(rows) for state in self.states))


class Ensemble:
    """Models with the same vocabulary on the same device, used as one model in a search."""

    def __init__(self, members: Sequence[EncoderDecoder]):
        self.members = tuple(members)

    @property
    def by(self) -> Arithmetic:
        """The first model's `Arithmetic`; each model has an `Arithmetic` for its own weights."""
        return self.members[0].by

    @property
    def longest(self) -> int:
        """The largest number of positions that every member accepts in a sentence."""
        return min(member.longest for member in self.members)

    @property
    def device(self) -> torch.device:
        """The device that the parameters are on."""
        return self.members[0].device

    def start(self, source: Rows) -> EnsembleState:
        """The state before the first token: each member encodes the sentences."""
        return EnsembleState(tuple(member.start(source) for member in self.members))

    def step(
        self, tokens: Int[Tensor, " rows"], state: EnsembleState
    ) -> tuple[Float[Tensor, "rows vocabulary"], EnsembleState]:
        """The log of the probability of each possible next token, and the state after `tokens`.

        The probability is the mean over the members. Its log has the dtype fp32.
        """
        logits, states = zip(
            *(
                member.step(tokens, its)
                for member, its in zip(self.members, state.states, strict=True)
            ),
            strict=True,
        )
        log_p = torch.stack([its.float().log_softmax(-1) for its in logits])
        return log_p.logsumexp(0) - math.log(len(self.members)), EnsembleState(states)
