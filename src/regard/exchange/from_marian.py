"""`regard import marian`: read a model of marian-nmt (a .npz file) and its vocabularies.

The configuration of the model is YAML text, stored as the array `special:model.yml` in the .npz
file.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import ModelError
from regard.exchange.foreign import (
    LONGEST_SOURCE,
    Foreign,
    ForeignConfig,
    foreign_recipe,
    most_extra,
    not_run,
)
from regard.exchange.matrices import ForeignMatrices
from regard.exchange.positions import tensor2tensor_sinusoids
from regard.exchange.reading import parse_yaml, read_npz
from regard.exchange.texts import SpecialNames, Texts, tokenizer_of
from regard.exchange.weights import ForeignWeights, layers
from regard.recipe import Recipe
from regard.text.foreign.base import ForeignTokenizer

CONFIG = "special:model.yml"
_ROWS = 1024
"""The number of positions of an imported model. marian-nmt computes sinusoids with another exponent
than §3.5. For this reason, the imported model stores these sinusoids, as a table of learned
positions."""
_NORM_EPSILON = 1e-6
_ACTIVATIONS = {"relu": "relu", "swish": "swish"}
"""regard's name of each activation function of marian-nmt. The "gelu" of marian-nmt is left out: it
is x · sigmoid(1.702 x), which regard does not have."""
_ONLY: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-depth": (2,),
    "transformer-no-projection": (False,),
    "transformer-no-affine": (False,),
    "transformer-no-bias": (False,),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-pool": (False,),
    "transformer-tied-layers": ([],),
    "transformer-train-position-embeddings": (False,),
    "transformer-train-positions": (False,),
    "transformer-decoder-dim-ffn": (0,),
    "factors-combine": ("sum",),
    "lemma-dim-emb": (0,),
    "ulr": (False,),
    "right-left": (False,),
}
"""Keys that change the model, with the values that can be imported; other values are refused."""
_ATTENTION = {"self": "self", "cross": "context"}


def read_marian(path: Path, texts: Texts) -> Foreign:
    """Read a .npz file; `texts` names the model's vocabularies and SentencePiece models.

    Raises ModelError for a file that is missing or damaged, or a model that cannot be converted
    exactly; MissingExtra if a package is not installed; RecipeError if `texts` names too few or too
    many files, an invalid language code, or files and languages that cannot be combined.
    """
    arrays = read_npz(path)
    keys = _config(arrays, path)
    tensors = _tensors(arrays, path)
    weights = ForeignWeights(tensors, path)
    shared = keys.flag("tied-embeddings-all", False)
    sources, targets = _entries(weights)
    tokenizer = tokenizer_of(texts, (sources, targets), SpecialNames(None, None), shared=shared)
    recipe = _recipe(keys, path, targets)
    found, fields = _converted(weights, keys, recipe, tokenizer, (sources, targets))
    files, side = texts.checksums(path), not_run("regard does not run marian-nmt")
    return Foreign("marian", path, recipe.but(**fields), found, tokenizer, files, side)


def _config(arrays: dict[str, np.ndarray[Any, Any]], path: Path) -> ForeignConfig:
    if CONFIG not in arrays:
        raise ModelError(f"{path}: has no {CONFIG}: it is not a model of marian-nmt")
    content = arrays[CONFIG].tobytes()
    try:
        text = content.decode().rstrip("\0")
    except UnicodeDecodeError:
        raise ModelError(f"{path}: its {CONFIG} is not text: the file is damaged") from None
    keys = ForeignConfig(parse_yaml(text, path), path)
    for key, values in _ONLY.items():
        keys.only(key, *values)
    # `only` accepts a configuration without `type`, although it may describe another kind of model.
    # If it also lacks `enc-depth`, it is refused here.
    keys.whole("enc-depth", least=1)
    return keys


def _tensors(arrays: dict[str, np.ndarray[Any, Any]], path: Path) -> dict[str, Tensor]:
    """The parameters, with the names and shapes that `_renamed` gives.

    The matrix of a linear layer is [outputs, inputs], as in PyTorch. Raises ModelError for a
    parameter that is not in float32.
    """
    found: dict[str, Tensor] = {}
    for name, array in arrays.items():
        if name.startswith("special:"):
            continue
        if array.dtype != np.float32:
            raise ModelError(f"{path}: {name} is of {array.dtype}: export the model in float32")
        found |= _renamed(name, torch.from_numpy(array))
    return found


def _renamed(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """A dictionary with one parameter, under its new name: for example, x_bq becomes x_q.bias.

    A matrix such as x_Wq becomes x_q.weight, and is also transposed. The gain x_ln_scale and the
    bias x_ln_bias of a LayerNorm become x_ln.weight and x_ln.bias. Any other parameter, such as
    Wemb, keeps its name.
    """
    if norm := re.fullmatch(r"(.*_ln)_(scale|bias)(_pre)?", name):
        stem, kind, pre = norm.groups()
        return {f"{stem}{pre or ''}.{'weight' if kind == 'scale' else kind}": tensor.flatten()}
    if linear := re.fullmatch(r"(.*_)([Wb])([qkvo12]?)", name):
        stem, kind, part = linear.groups()
        if kind == "b":
            return {f"{stem}{part}.bias": tensor.flatten()}
        return {f"{stem}{part}.weight": tensor.t() if tensor.ndim == 2 else tensor}
    return {name: tensor}


def _entries(weights: ForeignWeights) -> tuple[int, int]:
    """The sizes of the source's and the target's vocabulary: the numbers of rows of the embeddings.

    Raises ModelError if an embedding is missing.
    """
    sizes = []
    for side in ("encoder", "decoder"):
        name = "Wemb" if "Wemb" in weights else f"{side}_Wemb"
        sizes.append(weights.shape(name)[0])
    return sizes[0], sizes[1]


def _recipe(keys: ForeignConfig, path: Path, targets: int) -> Recipe:
    pre = keys.word("transformer-preprocess", "") == "n"
    keys.only("transformer-preprocess", "n" if pre else "")
    keys.only("transformer-postprocess", "da" if pre else "dan")
    keys.only("transformer-postprocess-top", "n" if pre else "")
    return foreign_recipe(
        path,
        targets,
        LONGEST_SOURCE,
        layers=keys.whole("enc-depth", least=1),
        decoder_layers=keys.whole("dec-depth", least=1),
        d_model=keys.whole("dim-emb", least=4),
        d_ff=keys.whole("transformer-dim-ffn", least=1),
        heads=keys.whole("transformer-heads", least=1),
        activation=keys.choice("transformer-ffn-activation", _ACTIVATIONS, "swish"),
        norm="pre" if pre else "post",
        norm_epsilon=_NORM_EPSILON,
        positions="learned",
        max_positions=_ROWS,
        dropout=min(keys.real("transformer-dropout", 0.1), 0.9),
        beam=6,
        alpha=1.0,
        penalty="length",
        max_extra=most_extra(LONGEST_SOURCE, 6),
    )


def _converted(
    weights: ForeignWeights,
    keys: ForeignConfig,
    recipe: Recipe,
    tokenizer: ForeignTokenizer[Any],
    sizes: tuple[int, int],
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights under regard's names, and the recipe fields that the weights determine."""
    model, width = recipe.model, recipe.model.d_model
    one = "Wemb" in weights
    source = weights.take("Wemb" if one else "encoder_Wemb", sizes[0], width)
    target = source if one else weights.take("decoder_Wemb", sizes[1], width)
    output = _output(weights, keys, target)
    name = "decoder_ff_logit_out_.bias"
    bias = weights.take(name, sizes[1]) if name in weights else None
    matrices = ForeignMatrices(
        tokenizer,
        source=source,
        target=target,
        output=output,
        bias=bias,
        start=torch.zeros(width),  # the decoder of marian-nmt begins with a vector of zeros
    )
    positions = tensor2tensor_sinusoids(_ROWS, width)
    part = _part(pre=model.norm == "pre")
    found = layers(weights, model, part, lambda stack: f"{stack}_top_ln")
    found |= matrices.weights(positions)
    weights.finish()
    return found, matrices.fields


def _output(weights: ForeignWeights, keys: ForeignConfig, target: Tensor) -> Tensor:
    """[entries, d_model] The matrix before the softmax, which may be the `target` embedding."""
    if keys.flag("tied-embeddings", False) or keys.flag("tied-embeddings-all", False):
        return target
    if "decoder_ff_logit_out_Wt" in weights:
        return weights.take("decoder_ff_logit_out_Wt", *target.shape)
    return weights.take("decoder_ff_logit_out_.weight", *target.shape)


def _part(*, pre: bool) -> Any:
    """Return a function of the type `PartName`, which gives marian-nmt's names of parts of layers.

    marian-nmt numbers layers from 1. `pre` tells whether the model has pre-norm.
    """
    norm = "ln_pre" if pre else "ln"

    def named(stack: str, i: int, part: str) -> str:
        kind, _, what = part.partition(".")
        prefix = f"{stack}_l{i + 1}_{_ATTENTION.get(kind, 'ffn')}"
        if what != "norm":
            return f"{prefix}_{what}"
        return f"{prefix}_{'ffn' if kind == 'ff' else 'Wo'}_{norm}"

    return named
