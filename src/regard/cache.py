"""The cache of keys and values, which a decoder attends to at each step of a search.

A slot of the cache holds the key and the value of one token in every head.
"""

from __future__ import annotations

from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


class Cache:
    """Keys and values of some sentences, which decoding attends to at each step.

    The tensors have a multiple of `multiple` slots, used or not. Slots that no token uses yet hold
    finite numbers, because an infinite number would give NaN, even if it is masked.
    """

    def __init__(
        self,
        keys: Float[Tensor, "sentences heads slots d_k"],
        values: Float[Tensor, "sentences heads slots d_v"],
        multiple: int = 1,
    ):
        self.slots, self._multiple, self._roomy = keys.shape[2], multiple, False
        # Matrix products need contiguous tensors. If the tensors were not made contiguous here,
        # each step would copy them again.
        self.keys = padded(keys, self.slots, multiple).contiguous()
        self.values = padded(values, self.slots, multiple).contiguous()

    def append(
        self,
        keys: Float[Tensor, "sentences heads new d_k"],
        values: Float[Tensor, "sentences heads new d_v"],
        places: Int[Tensor, "sentences new"] | None,
    ) -> None:
        """Add a slot for each new token, and write the token's keys and values.

        `places` holds the indices of the slots to write to, for each sentence. None means the added
        slots, into which writing is faster. If the tensors are too small, they are replaced by
        larger tensors. If `with_room` made this cache, it has the slots of all steps already: no
        slot is added, and `places` must be given.
        """
        if not self._roomy:
            self.slots += keys.shape[2]
            # The tensors grow in small steps. If they were much larger than their used part, each
            # matrix product would first copy the used part.
            self.keys = padded(self.keys, self.slots, self._multiple)
            self.values = padded(self.values, self.slots, self._multiple)
        if places is not None:
            self.write(keys, values, places)
            return
        for store, new in (self.keys, keys), (self.values, values):
            store[:, :, self.slots - new.shape[2] : self.slots] = new

    def write(
        self,
        keys: Float[Tensor, "sentences heads new d_k"],
        values: Float[Tensor, "sentences heads new d_v"],
        places: Int[Tensor, "sentences new"],
    ) -> None:
        """Write keys and values into the slots `places` of each sentence."""
        sentences = torch.arange(len(places), device=places.device)
        for store, new in (self.keys, keys), (self.values, values):
            store[sentences[:, None], :, places] = new.transpose(1, 2).to(store.dtype)

    def of(self, sentences: Int[Tensor, " fewer"]) -> Self:
        """A cache that holds only the sentences with these indices."""
        keys, values = (store.index_select(0, sentences) for store in (self.keys, self.values))
        cache = type(self)(keys, values, self._multiple)
        cache.slots, cache._roomy = self.slots, self._roomy
        return cache

    def with_room(self, slots: int) -> Self:
        """A cache with these keys and values and `slots` slots; `append` adds no more slots."""
        keys, values = (padded(store, slots, 1) for store in (self.keys, self.values))
        cache = type(self)(keys, values, self._multiple)
        cache.slots, cache._roomy = slots, True
        return cache

    def only(self, slots: Int[Tensor, "sentences fewer"]) -> Self:
        """A cache that holds only these slots of each sentence; they are renumbered from 0."""
        sentences, heads, capacity, _ = self.keys.shape
        first = torch.arange(0, sentences * heads * capacity, capacity, device=slots.device)
        # places[sentence, head, slot] is an index into the first three dimensions, flattened.
        places = first.view(sentences, heads, 1) + slots[:, None]

        def gathered(store: Tensor) -> Tensor:
            rows = store.flatten(0, 2).index_select(0, places.flatten())
            return rows.view(sentences, heads, -1, store.shape[-1])

        return type(self)(gathered(self.keys), gathered(self.values), self._multiple)


def padded(
    x: Float[Tensor, "rows heads keys d"], keys: int, multiple: int
) -> Float[Tensor, "rows heads more d"]:
    """Pad x with zeros to `keys` keys (or values), rounded up to a multiple of `multiple`.

    If x already has so many keys, or more, x is returned unchanged.
    """
    keys += -keys % multiple
    return F.pad(x, (0, 0, 0, keys - x.shape[2])) if keys > x.shape[2] else x
