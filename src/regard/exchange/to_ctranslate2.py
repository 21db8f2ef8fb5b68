"""Write a model in the format of CTranslate2, by CTranslate2's own specification classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import MissingExtra, ModelError
from regard.exchange.parts import NamedWeights, copied_weights, matrices_of, tables_of
from regard.exchange.vocabulary import entry_names, unknown_name
from regard.exchange.weights import parts_of_layer
from regard.recipe import ModelRecipe
from regard.run.model_directory import Model

try:
    from ctranslate2.specs import TransformerSpec, common_spec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec
except ModuleNotFoundError:
    raise MissingExtra("CTranslate2", "exchange") from None

_PROJECTIONS = {"self": ("qkv", "o"), "cross": ("q", "kv", "o"), "ff": ("1", "2")}
"""The linear layers of CTranslate2 in each kind of sub-layer. A letter or digit names a matrix of
regard: q is W_q, and 1 is W_1. Several letters name one layer, whose matrix joins these matrices:
qkv joins W_q, W_k and W_v."""


def write_ctranslate2(
    model: Model, folder: Path, precision: str, vocabulary: Sequence[str] | None = None
) -> None:
    """Write model.bin, config.json and the vocabularies into a folder.

    `precision` is the number format, such as "fp32" or "int8". `vocabulary` has the names of the
    entries, in the order of their ids, for source and target. If `vocabulary` is None, the names
    come from the tokenizer. Raises ModelError if CTranslate2 cannot compute the model.
    """
    recipe = model.recipe.model
    refuse_unlike(recipe)
    weights = copied_weights(model)  # a copy, because CTranslate2 rounds weights in place
    spec = _specified(recipe)
    for stack, table in zip((spec.encoder, spec.decoder), tables_of(model), strict=True):
        stack.scale_embeddings = recipe.d_model**0.5 if recipe.embedding_scale else 1.0
        stack.position_encodings.encodings = table
    source, target, output = matrices_of(recipe)
    spec.encoder.embeddings[0].weight = weights[source]
    spec.decoder.embeddings.weight = weights[target]
    spec.decoder.projection.weight = weights[output]
    if recipe.output_bias:
        spec.decoder.projection.bias = weights["output_bias"]
    for name, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        for i, layer in enumerate(stack.layer):
            parts = parts_of_layer(name, i, pre_norm=recipe.norm == "pre")
            _set_layer(layer, weights, parts, scaled=recipe.score == "scaled")
        if recipe.norm == "pre":
            _set_norm(stack.layer_norm, weights, f"{name}_norm")
    names = list(vocabulary or entry_names(model.tokenizer, "target"))
    sources = list(vocabulary or entry_names(model.tokenizer, "source"))
    spec.register_source_vocabulary(sources)
    spec.register_target_vocabulary(names)
    spec.config.unk_token = unknown_name(model.tokenizer, names)
    spec.config.bos_token, spec.config.eos_token = names[1:3]
    spec.config.decoder_start_token = names[1]
    spec.config.add_source_eos = recipe.source_end
    spec.config.layer_norm_epsilon = recipe.norm_epsilon
    spec.validate()
    spec.optimize("float32" if precision == "fp32" else precision)
    spec.save(str(folder))


def refuse_unlike(recipe: ModelRecipe) -> None:
    """Raise ModelError, which names the setting, if CTranslate2 cannot compute the model."""
    unlike = {
        "score = additive": recipe.score == "additive",
        "residual = false": not recipe.residual,
        "norm = last": recipe.norm == "last",
        f"d_v = {recipe.d_v}, other than d_k": recipe.d_v != recipe.d_k
        or recipe.decoder.d_v != recipe.decoder.d_k,
    }
    for what, found in unlike.items():
        if found:
            raise ModelError(f"model.{what}: CTranslate2 has no such thing; export onnx has")


def _specified(recipe: ModelRecipe) -> Any:
    """CTranslate2's specification of a model with this recipe, still without weights."""
    activations = {
        "relu": common_spec.Activation.RELU,
        "swish": common_spec.Activation.SWISH,
        "gelu": common_spec.Activation.GELU,
    }
    shared = {"pre_norm": recipe.norm == "pre", "activation": activations[recipe.activation]}

    def width(stack: ModelRecipe) -> dict[str, int]:
        usual = stack.heads * stack.d_k == stack.d_model
        return {} if usual else {"head_dim": stack.d_k}

    own = recipe.decoder
    return TransformerSpec(
        TransformerEncoderSpec(recipe.layers, recipe.heads, **shared, **width(recipe)),
        TransformerDecoderSpec(recipe.decoder_layers, own.heads, **shared, **width(own)),
    )


def _set_layer(layer: Any, weights: NamedWeights, parts: dict[str, str], *, scaled: bool) -> None:
    """Set the weights of `layer`, an encoder layer or a decoder layer of CTranslate2.

    `parts` maps each part of the layer, such as self.q, to the name of regard's module. In
    CTranslate2, each sub-layer has its own LayerNorm. If `scaled` is False, attention does not
    divide by sqrt(d_k).
    """
    cross = {"cross": layer.attention} if hasattr(layer, "attention") else {}
    for kind, spec in {"self": layer.self_attention, **cross, "ff": layer.ffn}.items():
        linears = [spec.linear_0, spec.linear_1] if kind == "ff" else spec.linear
        for linear, letters in zip(linears, _PROJECTIONS[kind], strict=True):
            names = [parts[f"{kind}.{letter}"] for letter in letters]
            linear.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
            linear.bias = np.concatenate([weights[f"{name}.bias"] for name in names])
        if kind != "ff" and not scaled:
            spec.queries_scale = 1.0  # by default, CTranslate2 multiplies by 1 / sqrt(d_k)
        _set_norm(spec.layer_norm, weights, parts[f"{kind}.norm"])


def _set_norm(spec: Any, weights: NamedWeights, name: str) -> None:
    spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]
