"""Data of a model that several export formats need: weights, names, positional encodings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.layers import Embedding
from regard.recipe import ModelRecipe
from regard.run.model_directory import Model
from regard.translation import MOST_PIECES

MOST_POSITIONS = 2**14
"""An exported table of sinusoids is for sources of at most this many tokens, even if the recipe
accepts longer sources. The table takes space in a file, and no real sentence is longer."""
NamedWeights = Mapping[str, NDArray[np.float32]]
"""The weights of a model, by their names in model.safetensors."""


class Matrices(NamedTuple):
    """The names of the embeddings and of the output matrix (§3.4); tied matrices have one name."""

    source: str
    target: str
    output: str


def matrices_of(recipe: ModelRecipe) -> Matrices:
    """The names of the source's embedding, the target's embedding and the matrix before softmax."""
    source = "embedding.tokens.weight"
    own_target = recipe.embeddings in ("target", "apart")
    target = "target_embedding.tokens.weight" if own_target else source
    own_output = recipe.embeddings in ("inputs", "apart")
    return Matrices(source, target, "output.tokens.weight" if own_output else target)


def copied_weights(model: Model) -> dict[str, NDArray[np.float32]]:
    """A copy of the weights in fp32, which the caller may change."""
    state = model.network.state_dict()
    return {name: tensor.float().numpy().copy() for name, tensor in state.items()}


class Tables(NamedTuple):
    """The positional encodings of source and target, each of the shape [positions, d_model]."""

    source: NDArray[np.float32]
    target: NDArray[np.float32]


def tables_of(model: Model) -> Tables:
    """The positional encodings of all positions that a source and an output may have.

    A learned table is returned as it is. A table of sinusoids has L + `search.max_extra` positions,
    where L is the maximum length of a source in tokens. L is `data.max_length`, but at most
    MOST_POSITIONS and at least MOST_PIECES.
    """
    accepted = max(MOST_PIECES, min(model.recipe.data.max_length, MOST_POSITIONS))
    longest = accepted + model.recipe.search.max_extra

    def table(embedding: Embedding) -> NDArray[np.float32]:
        if embedding.learned:
            learned: NDArray[np.float32] = embedding.positions.detach().float().numpy()
            return learned
        return embedding.sinusoids(longest, model.recipe.model.d_model).numpy()

    return Tables(table(model.network.embedding), table(model.network.target_side))
