"""§3.5 with positions counted in words: a symbol of a tree has a position of the next word.

A parser writes a tree without its words (§6.3), and must know which word comes next. With the
positions of the paper, the parser has to count the leaves that it has written and the sub-words
that it has read. In this module, source and target both count words, and each word has `STRIDE`
positions. The sub-words of a word have its first position, its second and so on. The symbols of the
tree have, in the same way, positions of the word whose leaf comes next. experiments/table4 measures
the effect.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import ModelError
from regard.layers import Embedding
from regard.recipe import ModelRecipe
from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import BOS, EOS
from regard.trees.linearise import CLOSE, OPEN

STRIDE = 8
"""The number of positions that each word has. The tokens of a word have the word's first position,
second position and so on. If a word has more tokens than positions, the further tokens have the
word's last position."""


class WordEmbedding(Embedding):
    """Token embeddings x sqrt(d_model) + sinusoids of the positions of words."""

    begins: Bool[Tensor, " vocabulary"]

    def __init__(self, recipe: ModelRecipe, vocabulary: int):
        super().__init__(recipe, vocabulary)
        empty = torch.zeros(0, dtype=torch.bool, device="cpu")
        self.register_buffer("begins", empty, persistent=False)

    def counted(
        self,
        ids: Int[Tensor, "rows length"],
        segments: Int[Tensor, "rows length"],
        positions: Int[Tensor, "rows length"],
    ) -> Int[Tensor, "rows length"]:
        """The positions of all tokens of rows; the arguments are the fields of a `Rows`.

        A position is STRIDE times the number of the word in its sentence, from 0, plus the number
        of tokens since the word began, up to STRIDE - 1.
        """
        first = positions == 0
        begins = (self._begins(ids) | first) & (segments != 0)
        words = begins.long().cumsum(1)
        # `before` counts the words of earlier sentences in the row.
        before = torch.where(first, words - 1, 0).cummax(1).values
        index = torch.arange(ids.shape[1], device=ids.device)
        begun_at = torch.where(begins, index, 0).cummax(1).values
        return STRIDE * (words - before - 1) + (index - begun_at).clamp(max=STRIDE - 1)

    def position_after(
        self, tokens: Int[Tensor, "sentences beams"], position: Int[Tensor, "sentences beams"]
    ) -> Int[Tensor, "sentences beams"]:
        """The position of each token, given the `position` of the token before it (-1 if none)."""
        word = position // STRIDE * STRIDE
        # If the first token is padding, its position is 0.
        inside = torch.minimum(position + 1, word + STRIDE - 1).clamp(min=0)
        return torch.where(self._begins(tokens), word + STRIDE, inside)

    def table(self, longest: int) -> Tensor:
        """The sinusoids of all positions that a sentence of this many tokens can have."""
        return super().table(STRIDE * longest)

    def _begins(self, ids: Int[Tensor, "*batch"]) -> Bool[Tensor, "*batch"]:
        if not len(self.begins):
            raise ModelError(
                'a model with model.positions = "words" needs its tokenizer: call know_words'
            )
        return self.begins[ids]


def know_words(model: Any, tokenizer: AnyTokenizer) -> None:
    """Tell a model which tokens begin a word; do nothing if its positions do not count words."""
    for embedding in {model.embedding, model.target_side}:
        if isinstance(embedding, WordEmbedding):
            flags = torch.from_numpy(begin_words(tokenizer))
            embedding.begins = flags.to(embedding.tokens.weight.device)


def know_words_of(model: Any, other: Any) -> None:
    """If positions count words, give `other` the flags of `model` for tokens that begin a word."""
    for mine, its in ((model.embedding, other.embedding), (model.target_side, other.target_side)):
        if isinstance(mine, WordEmbedding):
            its.begins = mine.begins


def begin_words(tokenizer: AnyTokenizer) -> NDArray[np.bool_]:
    """True for each id that begins a word.

    Such an id is <s>, </s>, a leaf of a tree, or a sub-word that starts with a space.
    """
    names = tokenizer.names(range(tokenizer.size), "source")
    begins = np.array([name.startswith(" ") for name in names])
    for name, number in tokenizer.symbols.items():
        begins[number] = not name.startswith((OPEN, CLOSE))
    begins[[BOS, EOS]] = True
    return begins
