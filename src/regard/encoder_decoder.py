"""The interface of all models, each of which has an encoder and a decoder.

The paper's Transformer has this interface (`regard.transformer`), and so have the models that it is
compared with (`regard.families`). In the paper's recipes, one matrix embeds all tokens and computes
the logits (§3.4). An arithmetic is an implementation of the paper's equations (`regard.equations`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Literal, Protocol, Self, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.rows import Rows
from regard.equations import Arithmetic, Computing
from regard.layers import Embedding
from regard.recipe import ModelRecipe
from regard.variants import OutputMatrix, embedding_of, with_bias_columns

AttentionKind = Literal["encoder", "decoder", "cross"]
"""Self-attention of the encoder, self-attention of the decoder, and encoder-decoder attention."""


class Attends(Protocol):
    """A module that computes attention; its attribute `by` implements the equations.

    To record attention weights, `by` is replaced by an `Arithmetic` that records these weights.
    """

    heads: int
    by: Arithmetic


class EncoderDecoder(Computing, ABC):
    """A model that computes decoder states from source and target rows, and logits from states."""

    whole_rows = False
    """Whether restricted attention (§4) is computed for whole rows and not in blocks, so that the
    attention weights can be recorded."""
    encoder: Sequence[nn.Module]
    """The encoder's layers. A sharded model gathers the weights of one layer at a time."""
    decoder: Sequence[nn.Module]
    """The decoder's layers."""
    few_rows: Any = None
    """A `FewRows` (compiled loops, see `arithmetic.few_rows`) that computes `start` and `step` of a
    Transformer, or None if the model's modules compute them."""

    def __init__(
        self,
        recipe: ModelRecipe,
        vocabulary: int,
        source_vocabulary: int | None = None,
        embed: Callable[[ModelRecipe, int], Embedding] = embedding_of,
    ):
        """Make the embeddings, each by `embed`, and the layer before the softmax.

        `vocabulary` is the size of the target's vocabulary, and `source_vocabulary` the size of the
        source's, if the sizes differ. Raises ValueError if the sizes differ and one matrix embeds
        source and target.
        """
        super().__init__()
        self.vocabulary, self.source_vocabulary = vocabulary, source_vocabulary or vocabulary
        if self.source_vocabulary != vocabulary and recipe.embeddings in ("shared", "inputs"):
            raise ValueError(f"embeddings = {recipe.embeddings}: source and target are one")
        self.embedding = embed(recipe, self.source_vocabulary)
        kind = recipe.embeddings
        self.target_embedding = embed(recipe, vocabulary) if kind in ("target", "apart") else None
        own = kind in ("inputs", "apart")
        self.output = OutputMatrix(vocabulary, recipe.d_model) if own else None
        self.output_bias = nn.Parameter(torch.zeros(vocabulary)) if recipe.output_bias else None

    @abstractmethod
    def encode(self, source: Rows) -> Any:
        """The encoded source, in the form that `decode` takes."""

    @abstractmethod
    def decode(
        self, target: Rows, memory: Any, source: Rows
    ) -> Float[Tensor, "rows target d_model"]:
        """The decoder's states; `target` is already shifted right and begins with <s>.

        `memory` is the encoded `source`.
        """

    @abstractmethod
    def start(self, source: Rows) -> Any:
        """Encode sentences, one per row; return the `search.Selectable` state before any token."""

    @abstractmethod
    def step(
        self, tokens: Int[Tensor, " rows"], state: Any
    ) -> tuple[Float[Tensor, "rows vocabulary"], Any]:
        """The logits of the next token of each row, and the new state.

        `tokens` holds the last token of each row. A state may be given to `step` only once.
        """

    @abstractmethod
    def attentions(self) -> Mapping[AttentionKind, Sequence[Attends]]:
        """The attention modules of each kind that the model has, first layer first."""

    def forward(self, source: Rows, target: Rows) -> Float[Tensor, "rows target vocabulary"]:
        """Figure 1 up to the softmax: the logits of each next token, given the tokens before it."""
        return self.logits(self.decode(target, self.encode(source), source))

    def logits(self, states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocabulary"]:
        """The logits of decoder states: the linear layer before the softmax (§3.4)."""
        return self.by.logits(states, self.output_matrix, self.output_bias)

    def factors(
        self, states: Float[Tensor, "tokens d_model"]
    ) -> tuple[Float[Tensor, "tokens width"], Float[Tensor, "vocabulary width"]]:
        """Two matrices, X and W, that a loss multiplies: X W^T are the logits of these states.

        Biases below `LEAST_BIAS`, which exclude a token, are raised to `LEAST_BIAS`.
        """
        return with_bias_columns(states, self.output_matrix.weight, self.output_bias)

    @property
    def target_side(self) -> Embedding:
        """The embedding of the target; in the paper, it is also the source's embedding (§3.4)."""
        return self.embedding if self.target_embedding is None else self.target_embedding

    @property
    def output_matrix(self) -> nn.Embedding:
        """The matrix before the softmax; in the paper, it is also the embedding matrix (§3.4)."""
        return (self.target_side if self.output is None else self.output).tokens

    @property
    def parameter_count(self) -> int:
        """The number of parameters; a matrix that is used in several places counts once."""
        return sum(p.numel() for p in self.parameters())

    @property
    def members(self) -> tuple[EncoderDecoder, ...]:
        """The models that compute together: only this model; an ensemble has several."""
        return (self,)

    @property
    def longest(self) -> int:
        """The largest number of positions that a sentence may have."""
        return self.embedding.longest

    @property
    def device(self) -> torch.device:
        """The device that the parameters are on."""
        return self.embedding.tokens.weight.device

    def make_tables(self, longest: int) -> None:
        """Compute the positional encodings for sentences of up to `longest` tokens now.

        Without this call, a longer table of encodings is computed when it is first needed. Learned
        encodings are not changed.
        """
        for embedding in {self.embedding, self.target_side}:
            embedding.table(longest)

    def compute_by(self, arithmetic: Arithmetic) -> None:
        """Compute all equations by `arithmetic` from now on; a new model computes by `PLAIN`."""
        for module in self.modules():
            if isinstance(module, Computing):
                module.by = arithmetic

    @contextmanager
    def computing_by(self, arithmetic: Arithmetic) -> Iterator[None]:
        """A context in which `arithmetic` computes all equations of this model."""
        before = [(m, m.by) for m in self.modules() if isinstance(m, Computing)]
        self.compute_by(arithmetic)
        try:
            yield
        finally:
            for module, by in before:
                module.by = by

    @contextmanager
    def stepping_by(self, few_rows: Any) -> Iterator[None]:
        """A context in which this `FewRows` computes `start` and `step`, and ranks hypotheses."""
        before, self.few_rows, self.by = (self.few_rows, self.by), few_rows, few_rows.by
        try:
            yield
        finally:
            self.few_rows, self.by = before

    def sharing_weights(self) -> Self:
        """A copy that shares this model's parameters, for a thread with another `Arithmetic`."""

        def shared(module: nn.Module) -> nn.Module:
            other = copy(module)
            other._modules = {
                name: child and shared(child) for name, child in module._modules.items()
            }
            return other

        return cast(Self, shared(self))
