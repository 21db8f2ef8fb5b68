"""Draw the initial weights of the models in `regard.families` at random."""

from torch import Tensor, nn

from regard.layers import Embedding
from regard.variants import OutputMatrix


def draw_normal(weight: Tensor, deviation: float) -> None:
    """Draw weights from a normal distribution around 0, except on the meta device."""
    if not weight.is_meta:  # drawing on the meta device would load a compiler
        nn.init.normal_(weight, std=deviation)


def draw_glorot(layer: nn.Linear, outputs: int) -> None:
    """Draw weights uniformly, from -a to a = sqrt(6 / (inputs + `outputs`)); the bias is 0."""
    if not layer.weight.is_meta:
        limit = (6 / (layer.in_features + outputs)) ** 0.5
        nn.init.uniform_(layer.weight, -limit, limit)
        nn.init.zeros_(layer.bias)


def draw_variance(layer: nn.Linear, variance: float) -> None:
    """Draw weights so that inputs of variance 1 give outputs of this variance; the bias is 0."""
    draw_normal(layer.weight, (variance / layer.in_features) ** 0.5)
    if not layer.bias.is_meta:
        nn.init.zeros_(layer.bias)


def draw_embeddings(model: nn.Module) -> None:
    """Draw all embeddings of a model, and its output matrix if this matrix is not an embedding.

    Token embeddings have a standard deviation of 1 after the multiplication by sqrt(d_model).
    Learned positional encodings have a standard deviation of 1.
    """
    for module in model.modules():
        if isinstance(module, Embedding | OutputMatrix):
            draw_normal(module.tokens.weight, module.tokens.embedding_dim**-0.5)
        if isinstance(module, Embedding) and module.learned:
            draw_normal(module.positions, 1.0)
