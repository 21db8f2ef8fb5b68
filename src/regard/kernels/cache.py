"""Keys and values that decoding attends to again at each step."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.kernels.attention import VECTOR


class Cache:
    """Keys and values of some sentences, which only grow: by a slot for each position appended.

    On a CPU they are kept in fp32, whose small products are faster than those of bf16, and the
    slots are followed by zeros up to a full vector.
    """

    def __init__(
        self,
        keys: Float[Tensor, "sentences heads slots d_k"],
        values: Float[Tensor, "sentences heads slots d_v"],
    ):
        self._both = [_extended(keys, 0), _extended(values, 0)]
        self.slots = keys.shape[2]

    def append(
        self,
        keys: Float[Tensor, "sentences heads new d_k"],
        values: Float[Tensor, "sentences heads new d_v"],
    ) -> None:
        """Fill the next slots; in place, unless there is no room left: it then doubles."""
        end = self.slots + keys.shape[2]
        room = self._both[0].shape[2]
        if end > room:
            self._both = [_extended(kept, max(end, 2 * room) - room) for kept in self._both]
        for kept, new in zip(self._both, (keys, values), strict=True):
            kept[:, :, self.slots : end] = new
        self.slots = end

    @property
    def keys(self) -> Float[Tensor, "sentences heads padded d_k"]:
        """Of every slot filled, then zeros."""
        return self._filled(0)

    @property
    def values(self) -> Float[Tensor, "sentences heads padded d_v"]:
        """Of every slot filled, then zeros."""
        return self._filled(1)

    def of(self, sentences: Int[Tensor, " fewer"]) -> Cache:
        """The keys and values of these sentences."""
        kept = Cache.__new__(Cache)
        kept._both, kept.slots = (
            [both.index_select(0, sentences) for both in self._both],
            self.slots,
        )
        return kept

    def _filled(self, which: int) -> Tensor:
        kept = self._both[which]
        return kept[:, :, : self.slots + (-self.slots % VECTOR if kept.device.type == "cpu" else 0)]


def _extended(x: Tensor, slots: int) -> Tensor:
    if x.device.type != "cpu":
        return F.pad(x, (0, 0, 0, slots))
    slots += -(x.shape[2] + slots) % VECTOR
    return F.pad(x.float(), (0, 0, 0, slots))
