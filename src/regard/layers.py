"""§3.3 to §3.5, and the residual connection of §3.1: every layer except attention."""

import math
import sys

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.equations import Computing
from regard.errors import ModelError
from regard.recipe import ModelRecipe


class FeedForward(Computing):
    """§3.3: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position."""

    def __init__(self, d_model: int, d_ff: int, relu_dropout: float = 0.0):
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)
        self.relu_dropout = relu_dropout

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Equation (2); in training, with `relu_dropout` on max(0, x W_1 + b_1)."""
        inner = self.by.linear(x, self.W_1, relu=True)
        inner = self.dropped(inner, self.relu_dropout)
        return self.by.linear(inner, self.W_2)


class AddNorm(Computing):
    """§3.1 and §5.4: LayerNorm(x + Dropout(Sublayer(x))), normalised after the sum."""

    def __init__(self, d_model: int, dropout: float, epsilon: float = 1e-6):
        super().__init__()
        self.norm = nn.LayerNorm(d_model, eps=epsilon)
        self.dropout = dropout

    def forward(
        self, x: Float[Tensor, "*batch d_model"], sublayer: Float[Tensor, "*batch d_model"]
    ) -> Float[Tensor, "*batch d_model"]:
        """Add & Norm: x is the sub-layer's input, and `sublayer` its output."""
        return self.by.add_norm(x, sublayer, self.norm, self.dropout if self.training else 0.0)


def sinusoids(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """§3.5: PE(pos, 2i) = sin(a) and PE(pos, 2i+1) = cos(a), with a = pos / 10000^(2i/d_model)."""
    # On the device "meta", these operations would load a compiler; so the CPU always computes them.
    numbers = torch.arange(max(length, d_model), dtype=torch.float64, device="cpu")
    positions = numbers[:length, None]
    rates = torch.exp(numbers[:d_model:2] * (-math.log(1e4) / d_model))
    angles = positions * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


class Embedding(Computing):
    """§3.4 and §3.5: token embeddings x sqrt(d_model) + positions, with dropout on the sum.

    In the paper, one matrix serves the source, the target and, transposed, the linear layer before
    the softmax.
    """

    sinusoids = staticmethod(sinusoids)

    def __init__(self, recipe: ModelRecipe, vocabulary: int):
        super().__init__()
        empty = torch.empty(vocabulary, recipe.d_model)  # the model initialises the matrix
        self.tokens = nn.Embedding(vocabulary, recipe.d_model, _weight=empty)
        self.scale = recipe.d_model**0.5 if recipe.embedding_scale else 1.0
        self.dropout, self.word_dropout = recipe.dropout, recipe.word_dropout
        self.learned = recipe.positions == "learned"
        self.longest = recipe.max_positions if self.learned else sys.maxsize
        self.positions: Tensor
        if self.learned:
            self.positions = nn.Parameter(torch.empty(recipe.max_positions, recipe.d_model))
        else:
            self.register_buffer("positions", self.sinusoids(512, recipe.d_model), persistent=False)

    def forward(
        self, ids: Int[Tensor, "rows length"], positions: Int[Tensor, "rows length"], longest: int
    ) -> Float[Tensor, "rows length d_model"]:
        """Embed tokens at their positions, in sentences of at most `longest` tokens.

        Raises ModelError if a position has not been learned. On a GPU, a different error is raised
        at a later time, because this method does not wait for the GPU.
        """
        table = self.table(longest)
        try:
            found = F.embedding(positions, table)
        except IndexError:
            raise ModelError(
                f"a sentence of {int(positions.max()) + 1} pieces is longer than the {len(table)} "
                "positions this model has learned: split it, or raise model.max_positions"
            ) from None
        x = self.vectors(ids)
        x = x + found.to(x.dtype)
        return self.dropped(x, self.dropout)

    def vectors(self, ids: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length d_model"]:
        """Token embeddings x `scale`; in training, `word_dropout` drops whole vectors."""
        x: Tensor = self.tokens(ids) * self.scale
        if self.training and self.word_dropout:
            x = x * self.by.drop(x.new_ones(*ids.shape, 1), self.word_dropout)
        return x

    def counted(
        self,
        ids: Int[Tensor, "rows length"],
        segments: Int[Tensor, "rows length"],
        positions: Int[Tensor, "rows length"],
    ) -> Int[Tensor, "rows length"]:
        """The position at which each token is embedded; this class returns `positions` as it is.

        The arguments are the fields of a `Rows`. A subclass may count positions in another way.
        """
        return positions

    def position_after(
        self, tokens: Int[Tensor, "sentences beams"], position: Int[Tensor, "sentences beams"]
    ) -> Int[Tensor, "sentences beams"]:
        """The position of each token, given the `position` of the token before it (-1 if none)."""
        return position + 1

    def table(self, longest: int) -> Float[Tensor, "positions d_model"]:
        """The vectors of all learned positions, or sinusoids of at least `longest` positions."""
        table = self.positions
        if longest > len(table) and not self.learned:
            size = max(longest, 2 * len(table)), self.tokens.embedding_dim
            with torch.inference_mode(False):  # training cannot use inference tensors
                wider = self.sinusoids(*size).to(table)
            # Another thread may replace self.positions at the same time by a shorter table, so
            # return the local variable.
            self.positions = table = wider
        return table
