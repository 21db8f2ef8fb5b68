"""Keys and values that decoding attends to again at each step."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.arithmetic.attention import with_room


class Cache:
    """Keys and values of some sentences, which only grow: by a slot for each position appended.

    On a CPU there is room for more slots, up to a full vector; it holds zeros.
    """

    def __init__(
        self,
        keys: Float[Tensor, "sentences heads slots d_k"],
        values: Float[Tensor, "sentences heads slots d_v"],
    ):
        self.slots = keys.shape[2]
        # In the order that products read, once, and not again at each step.
        self.keys = with_room(keys, self.slots).contiguous()
        self.values = with_room(values, self.slots).contiguous()

    def append(
        self,
        keys: Float[Tensor, "sentences heads new d_k"],
        values: Float[Tensor, "sentences heads new d_v"],
        places: Int[Tensor, "sentences new"] | None,
    ) -> None:
        """As many slots more, in place while there is room; the new ones go to these places.

        None is the last places in every sentence, which is faster.
        """
        self.slots += keys.shape[2]
        # By one vector at a time: a product of a part of a longer store would copy that part.
        self.keys, self.values = (with_room(kept, self.slots) for kept in (self.keys, self.values))
        sentences = None if places is None else torch.arange(len(places), device=places.device)
        for kept, new in (self.keys, keys), (self.values, values):
            if sentences is None:
                kept[:, :, self.slots - new.shape[2] : self.slots] = new
            else:
                kept[sentences[:, None], :, places] = new.transpose(1, 2).to(kept.dtype)

    def of(self, sentences: Int[Tensor, " fewer"]) -> Cache:
        """What these sentences have."""
        return self._like(*(kept.index_select(0, sentences) for kept in (self.keys, self.values)))

    def only(self, slots: Int[Tensor, "sentences fewer"]) -> Cache:
        """These slots of each sentence, which then are the first ones."""
        sentences, heads, room, _ = self.keys.shape
        first = torch.arange(0, sentences * heads * room, room, device=slots.device)
        # [sentences, heads, slots] where those three dimensions are one
        places = first.view(sentences, heads, 1) + slots[:, None]

        def gathered(kept: Tensor) -> Tensor:
            rows = kept.flatten(0, 2).index_select(0, places.flatten())
            return rows.view(sentences, heads, -1, kept.shape[-1])  # [places, d] -> [..., slots, d]

        return Cache(gathered(self.keys), gathered(self.values))

    def _like(self, keys: Tensor, values: Tensor) -> Cache:
        cache = Cache(keys, values)
        cache.slots = self.slots
        return cache
