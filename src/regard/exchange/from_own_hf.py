"""Read a directory that `regard export hf` wrote, and restore the weights bit for bit.

Only W_q may differ, by rounding: with model.score = dot, the export multiplied W_q by sqrt(d_k).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.errors import ModelError, RecipeError
from regard.exchange.foreign import Foreign, NotRunError
from regard.exchange.hf_plain_side import PretrainedSide
from regard.exchange.hf_text import OURS
from regard.exchange.hf_vocabulary import MarianVocabulary
from regard.exchange.parts import matrices_of
from regard.exchange.reading import read_safetensors
from regard.exchange.to_hf import MODULES, NORMS, order_of_dimensions
from regard.files.regular import checksum
from regard.recipe import ModelRecipe, Recipe
from regard.text.tokenizer import Tokenizer


def is_own(directory: Path) -> bool:
    """Whether `regard export hf` wrote a directory from a model with a tokenizer of our own."""
    return (directory / OURS).is_file() and not (directory / "source.spm").exists()


def read_own_hf(directory: Path) -> Foreign:
    """Read the recipe, the tokenizer and the weights; raises ModelError if they are damaged.

    The weights may differ from the exported ones: `transformers` may have trained the model further
    and saved the weights under the same names.
    """
    path = directory / "model.safetensors"
    try:
        recipe = Recipe.read(directory / "recipe.toml")
    except RecipeError as error:
        raise ModelError(str(error)) from None
    tokenizer = Tokenizer.load(directory / OURS)
    return Foreign(
        format="hf",
        where=directory,
        recipe=recipe,
        weights=_weights(recipe.model, read_safetensors(path), path),
        tokenizer=tokenizer,
        files={name: checksum(directory / name) for name in ("recipe.toml", OURS, path.name)},
        side=lambda: _side(directory, MarianVocabulary.own(tokenizer.size)),
    )


def _side(directory: Path, vocabulary: MarianVocabulary) -> PretrainedSide:
    try:
        return PretrainedSide(directory, vocabulary)
    except ModuleNotFoundError:
        raise NotRunError("transformers is not installed") from None


def _weights(recipe: ModelRecipe, theirs: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The weights under our names, with the dimensions of d_model in our order."""
    back = torch.from_numpy(np.argsort(order_of_dimensions(recipe)))
    found: dict[str, Tensor] = {}
    try:
        for name, equivalent in _matrices(recipe).items():
            found[name] = theirs[equivalent][:, back].contiguous()
        if recipe.output_bias:
            found["output_bias"] = theirs["final_logits_bias"][0].clone()
        for stack, layers in (("encoder", recipe.layers), ("decoder", recipe.decoder_layers)):
            for i in range(layers):
                found |= _layer(recipe, theirs, stack, i, back)
    except (KeyError, IndexError) as error:
        raise ModelError(f"{path}: does not fit recipe.toml: {error}: copy it again") from None
    return found


def _matrices(recipe: ModelRecipe) -> dict[str, str]:
    """MarianMTModel's name for each matrix of §3.4, by our name; tied matrices have one entry."""
    if recipe.embeddings == "shared":
        return {matrices_of(recipe).source: "model.shared.weight"}
    sides = [f"model.{stack}.embed_tokens.weight" for stack in ("encoder", "decoder")]
    theirs = (*sides, sides[1] if recipe.embeddings == "target" else "lm_head.weight")
    return dict(zip(matrices_of(recipe), theirs, strict=True))


def _layer(
    recipe: ModelRecipe, theirs: dict[str, Tensor], stack: str, i: int, back: Tensor
) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    ours, name = f"{stack}.{i}", f"model.{stack}.layers.{i}"
    for module, equivalent in MODULES.items():
        if stack == "encoder" and module.startswith("cross"):
            continue
        weight, bias = theirs[f"{name}.{equivalent}.weight"], theirs[f"{name}.{equivalent}.bias"]
        if module.endswith(("W_o", "W_2")):
            weight, bias = weight[back], bias[back]
        else:
            weight = weight[:, back]
        if module.endswith("W_q") and recipe.score == "dot":
            scale = (recipe if stack == "encoder" else recipe.decoder).d_k ** 0.5
            weight, bias = weight / scale, bias / scale
        found[f"{ours}.{module}.weight"] = weight.contiguous()
        found[f"{ours}.{module}.bias"] = bias.contiguous()
    for number, equivalent in enumerate(NORMS[stack], start=1):
        for kind in ("weight", "bias"):
            values = theirs[f"{name}.{equivalent}.{kind}"][back]
            found[f"{ours}.add_norm_{number}.norm.{kind}"] = values.contiguous()
    return found
