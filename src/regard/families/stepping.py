"""The state of decoding for models whose past has a fixed size, however long the output is."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.rows import Rows


@dataclass(frozen=True)
class StepState:
    """The state before a step: tensors with a row for each hypothesis, or for each sentence."""

    past: tuple[Float[Tensor, "sentences beams ..."], ...]
    """For each hypothesis, what the layers need to remember of the tokens that they have read."""
    memory: tuple[Float[Tensor, "sentences ..."], ...]
    """The encoded source, in the form that the family's decoder reads."""
    real: Bool[Tensor, "sentences source"]
    """True where the source is not padding."""
    length: int = 0
    """The number of tokens that the decoder has read, <s> included."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of sentences, and the number of hypotheses of each sentence."""
        sentences, beams = self.past[0].shape[:2]
        return sentences, beams

    def select(self, rows: Int[Tensor, "sentences beams"]) -> Self:
        """The state with only the hypotheses `rows`, in the order of `rows`.

        `rows` has numbers of hypotheses in the old state, where hypothesis b of sentence s has the
        number s * beams + b. In the new state, hypothesis b of sentence s is the hypothesis
        `rows[s, b]`. All hypotheses in `rows[s]` must belong to one sentence. Sentences may be left
        out, but must keep their order.
        """
        sentences, beams = self.shape
        past = tuple(x.flatten(0, 1)[rows] for x in self.past)
        if len(rows) == sentences:
            return replace(self, past=past)
        stay = rows[:, 0] // beams
        memory = tuple(x[stay] for x in self.memory)
        return replace(self, past=past, memory=memory, real=self.real[stay])

    def after(self, past: list[Tensor]) -> Self:
        """The state after one more token; `past` is what the layers keep after this token."""
        return replace(self, past=tuple(past), length=self.length + 1)


def is_real(rows: Rows) -> Bool[Tensor, "rows length"]:
    """True at each token of `rows`, and False at padding."""
    return rows.segments != 0


def reversal(real: Bool[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
    """The index that reverses each sentence: for each new position, the old position of its token.

    Padding, which follows a sentence, does not move.
    """
    places = torch.arange(real.shape[1], device=real.device)
    lengths = real.sum(1, keepdim=True)
    return torch.where(places < lengths, lengths - 1 - places, places)
