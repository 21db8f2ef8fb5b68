"""The state of a decoder that writes one token at a time, for a search.

After each step, the search selects the rows (hypotheses) that it continues. Keys and values are in
caches, whose slots each hold one token (`regard.cache`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from regard.cache import Cache

COMPACT_EVERY = 16
"""The number of tokens from one compaction to the next; a compaction drops the slots that belong to
no hypothesis. More frequent compactions would cost more than they save."""


@dataclass(frozen=True)
class DecoderState:
    """The state of decoding. A row is one hypothesis; each sentence has the same number of rows.

    In each layer, the hypotheses of a sentence share one cache of keys and values. Every step fills
    one slot of each cache for each hypothesis, and `ancestry` says which slots belong to a
    hypothesis. The slots of a sentence do not depend on the other sentences in the batch. The
    caches are written in place, so only one step can be made from a state: a second step would
    write to the same slots.
    """

    past: tuple[Cache, ...]
    """Keys and values of the target so far, layer by layer."""
    ancestry: Bool[Tensor, "sentences beams slots"]
    """For each hypothesis (beam): True where a slot of `past` belongs to it."""
    filled: Int[Tensor, " sentences"]
    """The number of slots that a sentence uses; its other slots are not attended to."""
    uniform: bool
    """Whether all sentences are known to use equally many slots. It is True until the first
    compaction or call of `with_room`."""
    length: int
    """The number of tokens decoded so far, <s> included. After `with_room`, it includes the tokens
    of all steps that there is room for."""
    memory: tuple[Cache, ...]
    """Keys and values of the encoded source, layer by layer."""
    memory_mask: Bool[Tensor, "sentences 1 1 source"]
    """True where the source is not padding and, if `source_end` is False, not </s>."""
    position: Int[Tensor, "sentences beams"]
    """The position with which the last token of each hypothesis was embedded; -1 at first."""
    reach: int = 0
    """If self-attention is restricted (§4): a step attends to at most this many earlier tokens;
    otherwise 0."""
    when: Int[Tensor, "sentences slots"] | None = None
    """If self-attention is restricted (§4): the number of tokens that were decoded before the token
    in each slot; otherwise None."""
    now: Int[Tensor, " one"] | None = None
    """After `with_room`: the number of tokens decoded so far, as a tensor on the device; otherwise
    None."""

    @property
    def slots(self) -> int:
        """The number of slots of each sentence, used or not."""
        return self.ancestry.shape[2]

    def after(
        self, position: Int[Tensor, "sentences beams"], places: Int[Tensor, "sentences beams"]
    ) -> DecoderState:
        """The state after one more token of each hypothesis.

        The tokens are at `position`; their keys and values are in the slots `places` of the caches.
        """
        more, now = (places.shape[1], self.length) if self.now is None else (0, self.now)
        ancestry = F.pad(self.ancestry, (0, more)).scatter_(2, places.unsqueeze(2), True)
        when = self.when
        if when is not None:
            when = F.pad(when, (0, more)).scatter_(1, places, torch.zeros_like(places) + now)
            ancestry = ancestry & (when >= now - self.reach).unsqueeze(1)
        later = {"length": self.length + 1} if self.now is None else {"now": self.now + 1}
        filled = self.filled + ancestry.shape[1]
        return replace(
            self, position=position, ancestry=ancestry, filled=filled, when=when, **later
        )

    def select(self, rows: Int[Tensor, "sentences beams"]) -> DecoderState:
        """Keep these rows (hypotheses), in this order; all of `rows[s]` belong to one sentence.

        A row has the number sentence * beams + beam. If sentences are left out, the remaining
        sentences keep their order.
        """
        sentences, beams, _ = self.ancestry.shape
        ancestry, position = self.ancestry.flatten(0, 1)[rows], self.position.flatten()[rows]
        if len(rows) == sentences:
            state = replace(self, ancestry=ancestry, position=position)
        else:
            stay = rows[:, 0] // beams
            state = replace(
                self,
                past=tuple(cache.of(stay) for cache in self.past),
                ancestry=ancestry,
                position=position,
                filled=self.filled[stay],
                memory=tuple(cache.of(stay) for cache in self.memory),
                memory_mask=self.memory_mask[stay],
                when=None if self.when is None else self.when[stay],
            )
        return state._compact()

    def _compact(self) -> DecoderState:
        """Drop the slots that no longer belong to a hypothesis, after every `COMPACT_EVERY` tokens.

        The slots are dropped even if they are few. If slots were dropped only when the whole batch
        has many to drop, a sentence's slots would depend on the batch's other sentences. If each
        sentence has only one hypothesis, and self-attention is not restricted, no slot is dropped:
        all slots of a sentence then belong to its hypothesis.
        """
        if self._keeps_all or self.length % COMPACT_EVERY or not self.length:
            return self
        if self.now is not None:  # slots are dropped later, by the next call of `with_room`
            return self
        return self._only(int(self.occupied()))

    @property
    def _keeps_all(self) -> bool:
        return self.ancestry.shape[1] == 1 and self.when is None

    def occupied(self) -> Int[Tensor, ""]:
        """The largest number of slots that belong to hypotheses of one sentence."""
        return self.ancestry.any(dim=1).sum(dim=1).amax()

    def with_room(self, steps: int, occupied: int) -> DecoderState:
        """This state with slots for `steps` more steps, during which its tensors keep their shapes.

        `occupied` is the number of slots to keep for each sentence. Until the next call of
        `with_room`, no slot is dropped.
        """
        slots, now = occupied + self.ancestry.shape[1] * steps, self.now
        state = self if self._keeps_all or not self.slots else self._only(slots)
        more = slots - state.slots
        return replace(
            state,
            past=tuple(cache.with_room(slots) for cache in state.past),
            ancestry=F.pad(state.ancestry, (0, more)),
            uniform=False,
            length=self.length + steps,
            when=None if state.when is None else F.pad(state.when, (0, more)),
            now=self.filled.new_full((1,), self.length) if now is None else now,
        )

    def _only(self, most: int) -> DecoderState:
        """Renumber the slots, used ones first, and keep at most `most` slots of each sentence.

        Each cache gets exactly `most` slots. If the state has fewer than `most` slots, the contents
        of the slots that are added at the end of the caches have no meaning.
        """
        lives = self.ancestry.any(dim=1)
        filled = lives.sum(dim=1)
        slots = lives.byte().sort(dim=1, descending=True, stable=True).indices
        slots = slots[:, :most]
        stored = F.pad(slots, (0, most - slots.shape[1]))
        return replace(
            self,
            past=tuple(cache.only(stored) for cache in self.past),
            ancestry=self.ancestry.gather(2, slots[:, None].expand(-1, self.ancestry.shape[1], -1)),
            filled=filled,
            uniform=False,
            when=None if self.when is None else self.when.gather(1, slots),
        )
