"""Write a model as Hugging Face's MarianMTModel, which has the paper's architecture.

MarianMTModel computes sinusoids with all sines before all cosines. In regard, sines and cosines
alternate, unless `model.positions` is "halves". For this reason, the export changes the order of
the d_model dimensions, in every weight that has an axis of these dimensions. So the exported model
computes the same sums as regard's model, but adds the terms of a sum in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import ModelError
from regard.exchange.cards import hf_card
from regard.exchange.hf_text import write_json, write_text_files
from regard.exchange.hf_vocabulary import MarianVocabulary
from regard.exchange.parts import NamedWeights, copied_weights, matrices_of
from regard.exchange.weights import parts_of_layer
from regard.files.tensors import write_tensors
from regard.recipe import ModelRecipe
from regard.run.model_directory import Model
from regard.text.foreign.base import ForeignTokenizer

_PARTS = {
    "self.q": "self_attn.q_proj",
    "self.k": "self_attn.k_proj",
    "self.v": "self_attn.v_proj",
    "self.o": "self_attn.out_proj",
    "self.norm": "self_attn_layer_norm",
    "cross.q": "encoder_attn.q_proj",
    "cross.k": "encoder_attn.k_proj",
    "cross.v": "encoder_attn.v_proj",
    "cross.o": "encoder_attn.out_proj",
    "cross.norm": "encoder_attn_layer_norm",
    "ff.1": "fc1",
    "ff.2": "fc2",
    "ff.norm": "final_layer_norm",
}
"""MarianMTModel's name for each part of a layer; `weights.PartName` explains the parts."""
LEAST_POSITIONS = 512
"""An exported model with our own tokenizer has at least this many positions."""


def write_hf(model: Model, folder: Path) -> None:
    """Write config.json, the weights, the tokenizer, generation_config.json and README.md.

    Raises ModelError if MarianMTModel cannot compute the model, or if `transformers` has no
    tokenizer that can take the place of the model's tokenizer.
    """
    recipe = model.recipe.model
    refuse_unmarian(recipe)
    vocabulary = MarianVocabulary.of(model)
    named = _tensors(recipe, copied_weights(model), vocabulary)
    tensors = {name: torch.from_numpy(values) for name, values in named}
    write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    write_json(folder / "config.json", _config(model, vocabulary))
    write_json(folder / "generation_config.json", _generation(model, vocabulary))
    write_text_files(model.tokenizer, positions_of(model), folder)
    (folder / "README.md").write_text(hf_card(model), encoding="utf-8")


def refuse_unmarian(recipe: ModelRecipe) -> None:
    """Raise ModelError, which names the setting, if MarianMTModel cannot compute the model."""
    widths = [one.heads * d for one in (recipe, recipe.decoder) for d in (one.d_k, one.d_v)]
    missing = {
        f"model.norm = {recipe.norm}": recipe.norm != "post",
        "model.source_end = false": not recipe.source_end,
        "model.positions = learned": recipe.positions == "learned",
        "model.score = additive": recipe.score == "additive",
        "model.residual = false": not recipe.residual,
        "model.d_k or d_v, other than d_model / heads": set(widths) != {recipe.d_model},
    }
    for field, found in missing.items():
        if found:
            raise ModelError(f"{field}: MarianMTModel has no such thing; export onnx has")


def positions_of(model: Model) -> int:
    """The value of `max_position_embeddings` in the exported model: its number of positions.

    If the model has a foreign tokenizer, as most imported models do, this is `data.max_length`. If
    the tokenizer is regard's own, this is `data.max_length` + `search.max_extra`, but at least
    LEAST_POSITIONS. This is enough for the longest source and its output.
    """
    longest = model.recipe.data.max_length
    if isinstance(model.tokenizer, ForeignTokenizer):
        return longest
    return max(LEAST_POSITIONS, longest + model.recipe.search.max_extra)


def order_of_dimensions(recipe: ModelRecipe) -> NDArray[np.int64]:
    """[d_model] For each dimension of MarianMTModel, the index of this dimension in regard."""
    dimensions = np.arange(recipe.d_model)
    if recipe.positions == "halves":
        return dimensions
    return np.concatenate([dimensions[0::2], dimensions[1::2]])


def _tensors(
    recipe: ModelRecipe, weights: NamedWeights, vocabulary: MarianVocabulary
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the name and the values of each weight of MarianMTModel."""
    order = order_of_dimensions(recipe)
    source, target, output = (weights[name][:, order] for name in matrices_of(recipe))
    source, target, output = (
        vocabulary.source_rows(source), vocabulary.target_rows(target), vocabulary.rows(output),
    )  # fmt: skip
    if recipe.embeddings == "shared":
        yield "model.shared.weight", target
    else:
        yield "model.encoder.embed_tokens.weight", source
        yield "model.decoder.embed_tokens.weight", target
        if recipe.embeddings != "target":
            yield "lm_head.weight", output
    yield "final_logits_bias", vocabulary.bias(weights.get("output_bias"))[None]
    for stack, layers in (("encoder", recipe.layers), ("decoder", recipe.decoder_layers)):
        for i in range(layers):
            yield from _layer(recipe, weights, stack, i, order)


def _layer(
    recipe: ModelRecipe, weights: NamedWeights, stack: str, i: int, order: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for part, ours in parts_of_layer(stack, i, pre_norm=False).items():
        weight, bias = weights[f"{ours}.weight"], weights[f"{ours}.bias"]
        # A norm, W_o and W_2 have d_model outputs; all other linear layers have d_model inputs.
        if part.endswith((".norm", ".o", ".2")):
            weight, bias = weight[order], bias[order]
        else:
            weight = weight[:, order]
        if part.endswith(".q") and recipe.score == "dot":
            scale = np.float32((recipe if stack == "encoder" else recipe.decoder).d_k ** 0.5)
            weight, bias = weight * scale, bias * scale
        theirs = marian_part(stack, i, part)
        yield f"{theirs}.weight", np.ascontiguousarray(weight)
        yield f"{theirs}.bias", np.ascontiguousarray(bias)


def marian_part(stack: str, i: int, part: str) -> str:
    """MarianMTModel's name of a part of a layer; `PartName` explains the arguments."""
    return f"model.{stack}.layers.{i}.{_PARTS[part]}"


def _config(model: Model, vocabulary: MarianVocabulary) -> dict[str, Any]:
    recipe = model.recipe.model
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "tokenizer_class": vocabulary.tokenizer_class,
        "vocab_size": vocabulary.source_order.size,
        "decoder_vocab_size": vocabulary.order.size,
        "d_model": recipe.d_model,
        "encoder_layers": recipe.layers,
        "decoder_layers": recipe.decoder_layers,
        "encoder_attention_heads": recipe.heads,
        "decoder_attention_heads": recipe.decoder.heads,
        "encoder_ffn_dim": recipe.d_ff,
        "decoder_ffn_dim": recipe.decoder.d_ff,
        "activation_function": recipe.activation,
        "scale_embedding": recipe.embedding_scale,
        "share_encoder_decoder_embeddings": recipe.embeddings == "shared",
        "tie_word_embeddings": recipe.embeddings in ("shared", "target"),
        "max_position_embeddings": positions_of(model),
        "dropout": recipe.dropout,
        "attention_dropout": recipe.attention_dropout,
        "activation_dropout": recipe.relu_dropout,
        "is_encoder_decoder": True,
        "use_cache": True,
        "dtype": "float32",
        **vocabulary.ids,
        "forced_eos_token_id": None,
    }


def _generation(model: Model, vocabulary: MarianVocabulary) -> dict[str, Any]:
    """The settings of `generate` that come nearest to the model's search.

    The model card tells what differs.
    """
    search, longest = model.recipe.search, positions_of(model)
    if isinstance(model.tokenizer, ForeignTokenizer):
        # The imports hf and marian set max_extra to the maximum length of an output. The
        # max_length of `transformers` also counts <s>.
        longest = min(longest, search.max_extra + 1)
    return {
        **vocabulary.ids,
        "bad_words_ids": [[i] for i in vocabulary.never] or None,
        "renormalize_logits": vocabulary.excluded,
        "do_sample": False,
        "early_stopping": False,
        "num_beams": search.beam,
        "length_penalty": search.alpha,
        "max_length": longest,
    }
