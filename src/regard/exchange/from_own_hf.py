"""Read a directory that `regard export hf` wrote, and restore the weights bit for bit.

Only W_q may differ, by rounding: with model.score = dot, the export multiplied W_q by sqrt(d_k),
and the import divides W_q by sqrt(d_k).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.exchange.foreign import Foreign, NotRunError
from regard.exchange.hf_side import MarianSide, exported_side
from regard.exchange.hf_text import OURS
from regard.exchange.hf_vocabulary import MarianVocabulary
from regard.exchange.parts import matrices_of
from regard.exchange.reading import checksum_of, read_safetensors
from regard.exchange.to_hf import marian_part, order_of_dimensions
from regard.exchange.weights import ForeignWeights, layers
from regard.recipe import ModelRecipe
from regard.run.model_directory import recipe_in
from regard.text.tokenizer import Tokenizer

_D_MODEL_OUT = (
    *(f"{layer}.{kind}" for layer in ("W_o", "W_2") for kind in ("weight", "bias")),
    *("norm.weight", "norm.bias"),
)
"""A weight of regard has d_model as its first axis if its name ends in one of these suffixes."""


def is_own(directory: Path) -> bool:
    """Whether `regard export hf` wrote a directory from a model with a tokenizer of regard."""
    return (directory / OURS).is_file() and not (directory / "source.spm").exists()


def read_own_hf(directory: Path) -> Foreign:
    """Read the recipe, the tokenizer and the weights; raises ModelError for a bad or missing file.

    The weights in the directory may differ from the exported ones: `transformers` may have trained
    the model further and saved the weights under the same names, perhaps in 16 bits. If
    `model.embeddings` is "inputs", source and target had one embedding before the export, but
    `transformers` trains two embeddings. If the two embeddings differ now, the restored model has
    both.
    """
    path = directory / "model.safetensors"
    files = {name: checksum_of(directory / name) for name in ("recipe.toml", OURS, path.name)}
    recipe = recipe_in(directory)
    tokenizer = Tokenizer.load(directory / OURS)
    weights = ForeignWeights(read_safetensors(path), path)
    found, fields = _matrices(weights, recipe.model, tokenizer.size)
    found |= layers(weights, recipe.model, marian_part)
    weights.finish()
    return Foreign(
        format="hf",
        where=directory,
        recipe=recipe.but(**fields),
        weights=_in_our_order(found, recipe.model),
        tokenizer=tokenizer,
        files=files,
        side=lambda: _side(directory, MarianVocabulary.own(tokenizer.size)),
    )


def _side(directory: Path, vocabulary: MarianVocabulary) -> MarianSide:
    # Without config.json, `transformers` would open a large default model.
    if not (directory / "config.json").is_file():
        raise NotRunError("transformers cannot open it: it has no config.json")
    try:
        return exported_side(directory, vocabulary)
    except ModuleNotFoundError:
        raise NotRunError("transformers is not installed") from None
    except Exception as error:  # `transformers` may raise any error for files of other versions
        raise NotRunError(f"transformers cannot open it: {str(error)[:200]}") from None


def _matrices(
    weights: ForeignWeights, recipe: ModelRecipe, size: int
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the embeddings and the output layer (§3.4), under regard's names.

    Also returns the recipe fields that these weights determine.
    """
    kind, width = recipe.embeddings, recipe.d_model
    if kind == "shared":
        found = {matrices_of(recipe).source: weights.take("model.shared.weight", size, width)}
    else:
        stored = [
            weights.take(f"model.{stack}.embed_tokens.weight", size, width)
            for stack in ("encoder", "decoder")
        ]
        if kind == "inputs" and not torch.equal(*stored):
            kind = "apart"
        stored.append(
            stored[1] if kind == "target" else weights.take("lm_head.weight", size, width)
        )
        names = matrices_of(recipe.model_copy(update={"embeddings": kind}))
        found = dict(zip(names, stored, strict=True))
    bias = weights.take("final_logits_bias", 1, size)[0]
    biased = recipe.output_bias or bool(bias.any())
    if biased:
        found["output_bias"] = bias
    return found, {"embeddings": kind, "output_bias": biased}


def _in_our_order(found: dict[str, Tensor], recipe: ModelRecipe) -> dict[str, Tensor]:
    """Return the weights with their d_model dimensions in regard's order again.

    If `recipe.score` is "dot", W_q and its bias are divided by sqrt(d_k), because the export
    multiplied them by sqrt(d_k).
    """
    back = torch.from_numpy(np.argsort(order_of_dimensions(recipe)))
    ordered: dict[str, Tensor] = {}
    for name, values in found.items():
        if name.endswith(_D_MODEL_OUT):
            values = values[back]
        elif values.ndim == 2:
            # Other matrices, such as the embeddings, W_q and W_1, have d_model columns.
            values = values[:, back]
        if ".W_q." in name and recipe.score == "dot":
            stack = recipe if name.startswith("encoder") else recipe.decoder
            values = values / stack.d_k**0.5
        ordered[name] = values.contiguous()
    return ordered
