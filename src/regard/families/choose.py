"""Make the model that a recipe describes; the field `model.family` names its family."""

from collections.abc import Callable, Mapping

from regard.encoder_decoder import EncoderDecoder
from regard.families.convolutional import ConvolutionalModel
from regard.families.dilated import DilatedModel
from regard.families.recurrent import RecurrentModel
from regard.recipe import ModelRecipe
from regard.transformer import Transformer

FAMILIES: Mapping[str, Callable[..., EncoderDecoder]] = {
    "transformer": Transformer,
    "recurrent": RecurrentModel,
    "convolutional": ConvolutionalModel,
    "dilated": DilatedModel,
}
"""The class of the models of each family, by the name of the family."""


def new_model(
    recipe: ModelRecipe, vocabulary: int, source_vocabulary: int | None = None
) -> EncoderDecoder:
    """Make a model with random weights; `vocabulary` is the size of the target's vocabulary.

    `source_vocabulary` is the size of the source's vocabulary, if the sizes differ. Raises
    ValueError if they differ and one matrix embeds source and target.
    """
    return FAMILIES[recipe.family](recipe, vocabulary, source_vocabulary)
