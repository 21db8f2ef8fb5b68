"""§3.4 Embeddings for families that read a sentence in order, and so need no positions (§3.5)."""

import sys

from torch import Tensor

from regard.layers import Embedding
from regard.recipe import ModelRecipe


class TokenEmbedding(Embedding):
    """Token embeddings times `scale` (sqrt(d_model) in §3.4), with dropout, without positions."""

    def __init__(self, recipe: ModelRecipe, vocabulary: int):
        super().__init__(recipe, vocabulary)
        self.longest = sys.maxsize

    def forward(self, ids: Tensor, positions: Tensor, longest: int) -> Tensor:
        """Embed tokens; their positions are not used."""
        return self.dropped(self.vectors(ids), self.dropout)
