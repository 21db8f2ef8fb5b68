"""Count parameters and multiply-adds in the layers of models that are not Transformers (Table 2).

`paper.parameters` adds the parameters of embeddings and learned positions, and `cost.flop` adds the
multiply-adds of the logits, in the same way for all families.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from regard.recipe import ModelRecipe

BLOCKED_FROM = 3
"""Restricted self-attention (§4) divides a sequence into blocks of r / 2 positions only if the
sequence is longer than this many blocks. In shorter sequences, blocks would gain nothing."""


class FamilySizes(NamedTuple):
    """Counts of parameters and of multiply-adds in the layers of a model."""

    parameters: int
    """The parameters of all layers."""
    source: int
    """Multiply-adds by weight matrices for each source token."""
    target: int
    """Multiply-adds by weight matrices for each target token."""
    pair: int
    """Multiply-adds of attention for each combination of a source token and a target token."""


def family_sizes(model: ModelRecipe) -> FamilySizes:
    """The counts for a model that is not a Transformer."""
    return _SIZES[model.family](model)


def _recurrent(model: ModelRecipe) -> FamilySizes:
    """The counts for a recurrent model; a gate has a bias for its input and one for the state."""
    d, higher = model.d_model, model.decoder_layers - 1
    one, joined, bias = 4 * d * (d + d), 4 * d * (2 * d + d), 8 * d
    encoder = 2 * one + joined + (model.layers - 2) * one
    decoder = one + higher * joined
    lstms = model.layers + 1 + model.decoder_layers
    attention = 2 * (d * d + d) + d
    return FamilySizes(
        encoder + decoder + lstms * bias + attention, encoder + d * d, decoder + d * d, 2 * d
    )


def _convolutional(model: ModelRecipe) -> FamilySizes:
    """The counts for a convolutional model; attention projects queries and outputs, not keys."""
    d, encoder, decoder = model.d_model, model.layers, model.decoder_layers
    square, convolution = d * d, model.kernel * d * 2 * d
    parameters = (
        (encoder + decoder) * (convolution + 2 * d)
        + decoder * 2 * (square + d)
        + 4 * (square + d)  # the linear layers before and after both stacks
    )
    return FamilySizes(
        parameters,
        encoder * convolution + 2 * square,
        decoder * (convolution + 2 * square) + 2 * square,
        decoder * 2 * d,
    )


def _dilated(model: ModelRecipe) -> FamilySizes:
    """The counts for a dilated model, whose encoder has 1.2 outputs for each source token."""
    d, inner = model.d_model, model.d_model // 2
    block = 2 * d * inner + model.kernel * inner * inner
    # The biases of the three linear layers, then the gains and biases of the three norms.
    others = (2 * inner + d) + 2 * (d + 2 * inner)
    last = d * d + d + 2 * d
    return FamilySizes(
        (model.layers + model.decoder_layers) * (block + others) + last,
        model.layers * block * 6 // 5,
        model.decoder_layers * block + d * d,
        0,
    )


_SIZES: Mapping[str, Callable[[ModelRecipe], FamilySizes]] = {
    "recurrent": _recurrent,
    "convolutional": _convolutional,
    "dilated": _dilated,
}
