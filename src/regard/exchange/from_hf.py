"""`regard import hf`: read a model of Hugging Face's MarianMTModel, such as a model of OPUS-MT."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.exchange.foreign import Foreign, ForeignConfig, foreign_recipe
from regard.exchange.from_own_hf import is_own, read_own_hf
from regard.exchange.hf_generation import GENERATION_KEYS, SPECIAL_IDS, Generation, generation_of
from regard.exchange.hf_side import foreign_side
from regard.exchange.hf_text import OURS
from regard.exchange.matrices import ForeignMatrices
from regard.exchange.positions import learned_positions
from regard.exchange.reading import (
    checksum_of,
    read_object,
    read_pickled,
    read_safetensors,
    tensors_of,
)
from regard.exchange.to_hf import marian_part
from regard.exchange.weights import ForeignWeights, layers
from regard.recipe import Recipe
from regard.text.foreign.sentence_pieces import SentencePieceTokenizer
from regard.variants import sinusoids_in_halves

_ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}
_NORM_EPSILON = 1e-5
"""MarianMTModel always uses this epsilon in LayerNorm; no key of config.json can change it."""
WEIGHTS = "model.safetensors", "pytorch_model.bin"
TEXT_FILES = "source.spm", "target.spm", "vocab.json"


def read_hf(directory: Path) -> Foreign:
    """Read a directory of MarianMTModel and MarianTokenizer.

    The files are config.json, generation_config.json if there is one, model.safetensors or
    pytorch_model.bin, source.spm, target.spm, vocab.json and, if they exist, target_vocab.json
    and tokenizer_config.json. If `regard export hf` wrote the directory from a model with regard's
    own tokenizer, that model is restored (`read_own_hf`). Raises ModelError for a file that is
    missing or damaged, or a model that cannot be converted exactly, and MissingExtra if
    SentencePiece is needed and not installed.
    """
    if is_own(directory):
        return read_own_hf(directory)
    config = _config(directory)
    vocabulary = config.whole("vocab_size", least=4, most=10**6)
    targets = config.whole("decoder_vocab_size", vocabulary, least=4, most=10**6)
    generation = generation_of(_generation_keys(directory, config), targets)
    path = _weights_path(directory)
    is_safe = path.suffix == ".safetensors"
    tensors = read_safetensors(path) if is_safe else tensors_of(read_pickled(path), path)
    recipe = _recipe(config, generation, targets)
    tokenizer = _tokenizer(directory, generation, vocabulary, targets)
    weights, recipe = _converted(tensors, path, config, recipe, generation, tokenizer, vocabulary)
    return Foreign(
        format="hf",
        where=directory,
        recipe=recipe,
        weights=weights,
        tokenizer=tokenizer,
        files=_checksums(directory, path, tokenizer),
        side=lambda: foreign_side(directory, tensors, generation, tokenizer),
    )


def _config(directory: Path) -> ForeignConfig:
    if not directory.is_dir():
        raise ModelError(f"{directory}: no such directory: name one that holds a config.json")
    keys = ForeignConfig(read_object(directory / "config.json"), directory / "config.json")
    if keys.get("model_type") != "marian":
        named = keys.get("model_type") or (keys.get("architectures") or ["unknown"])
        raise ModelError(
            f"{keys.where}: a model of the kind {named!r:.60}: of Hugging Face's models, those of "
            "MarianMTModel can be imported"
        )
    for key in ("normalize_before", "normalize_embedding", "add_final_layer_norm"):
        keys.only(key, False)
    keys.only("is_encoder_decoder", True)
    keys.only("static_position_embeddings", True)
    return keys


def _generation_keys(directory: Path, config: ForeignConfig) -> ForeignConfig:
    """The settings of the model's search, from generation_config.json and config.json.

    Older models have all settings in config.json, so config.json gives the settings that
    generation_config.json lacks. But if generation_config.json has settings, and the value of
    `_from_model_config` in it is missing or false, the model is a newer one. In this case,
    config.json gives only the ids of special tokens.
    """
    path = directory / "generation_config.json"
    older = {key: config.get(key) for key in GENERATION_KEYS if key in config}
    newer = read_object(path) if path.exists() or path.is_symlink() else {}
    if newer and not newer.get("_from_model_config"):
        older = {key: older[key] for key in SPECIAL_IDS if key in older}
    return ForeignConfig(older | newer, path if newer else config.where)


def _weights_path(directory: Path) -> Path:
    for name in WEIGHTS:
        path = directory / name
        if path.exists() or path.is_symlink():
            return path
    if any(directory.glob("*.index.json")):
        raise ModelError(f"{directory}: its weights are in several files: save them as one")
    raise ModelError(f"{directory}: has no {' or '.join(WEIGHTS)}: the model is not complete")


def _recipe(config: ForeignConfig, generation: Generation, targets: int) -> Recipe:
    d_model = config.whole("d_model", least=1)
    heads = config.whole("encoder_attention_heads", least=1)
    decoder_heads = config.whole("decoder_attention_heads", least=1)
    if d_model % decoder_heads:
        raise config.refusal("decoder_attention_heads", f"a divisor of d_model, {d_model}")
    return foreign_recipe(
        config.where,
        targets,
        config.whole("max_position_embeddings", least=2),
        layers=config.whole("encoder_layers", least=1),
        decoder_layers=config.whole("decoder_layers", least=1),
        d_model=d_model,
        d_ff=config.whole("encoder_ffn_dim", least=1),
        decoder_d_ff=config.whole("decoder_ffn_dim", least=1),
        heads=heads,
        decoder_heads=decoder_heads,
        activation=config.choice("activation_function", _ACTIVATIONS, "gelu"),
        embedding_scale=config.flag("scale_embedding", False),
        norm_epsilon=_NORM_EPSILON,
        positions="halves",
        dropout=config.real("dropout", 0.1),
        attention_dropout=config.real("attention_dropout", 0.0),
        relu_dropout=config.real("activation_dropout", 0.0),
        **generation.fields,
    )


def _tokenizer(
    directory: Path, generation: Generation, sources: int, targets: int
) -> SentencePieceTokenizer:
    if (directory / "tokenizer.json").exists() and not (directory / TEXT_FILES[0]).exists():
        raise ModelError(
            f"{directory}: has tokenizer.json instead of {TEXT_FILES[0]}: if regard export hf "
            f"wrote the model first, copy recipe.toml and {OURS} from the directory that it wrote"
        )
    for name in TEXT_FILES:
        if not (directory / name).exists():
            raise ModelError(f"{directory}: has no {name}: the tokenizer is not complete")
    tokenizer = SentencePieceTokenizer.read_marian(
        directory,
        specials=generation.specials,
        source_specials=(-1, -1, generation.end),
        size=targets,
        source_size=sources,
    )
    if tokenizer.shared and sources != targets:
        raise ModelError(
            f"{directory / 'config.json'}: has {sources:,} entries for the source and {targets:,} "
            "for the target, and tokenizer_config.json has not separate_vocabs = true"
        )
    return tokenizer


def _converted(
    tensors: dict[str, Tensor],
    path: Path,
    config: ForeignConfig,
    recipe: Recipe,
    generation: Generation,
    tokenizer: SentencePieceTokenizer,
    sources: int,
) -> tuple[dict[str, Tensor], Recipe]:
    """Return the weights under regard's names, and `recipe` with fields set from the weights.

    `sources` is the number of entries of the source's vocabulary.
    """
    weights, model, targets = ForeignWeights(tensors, path), recipe.model, tokenizer.order.size
    source, target, output = _tables(weights, config, sources, targets)
    has_bias = "final_logits_bias" in weights
    bias = weights.take("final_logits_bias", 1, targets)[0] if has_bias else None
    positions, fields = _positions(weights, recipe)
    matrices = ForeignMatrices(
        tokenizer,
        source=source,
        target=target,
        output=output,
        bias=bias,
        start=target[generation.start],
        never=generation.forbidden if generation.excluded else frozenset(),
    )
    found = layers(weights, model, marian_part) | matrices.weights(positions)
    weights.finish()
    return found, recipe.but(**fields, **matrices.fields)


def _tables(
    weights: ForeignWeights, config: ForeignConfig, sources: int, targets: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The source's embedding, the target's embedding, and the matrix before the softmax.

    Each matrix is [entries, d_model]. Tied matrices are returned as one tensor. If the file stores
    a tied matrix under several names, only one of these copies is used. Raises ModelError if the
    file lacks a matrix, if a matrix does not have the shape that `config` asks for, or if `config`
    shares one matrix between vocabularies of different sizes.
    """
    source, target = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
    shared, output = "model.shared.weight", "lm_head.weight"
    tied = config.flag("tie_word_embeddings", True)
    one = config.flag("share_encoder_decoder_embeddings", True)
    if one and sources != targets:
        raise config.refusal("decoder_vocab_size", f"vocab_size, {sources:,}: it shares embeddings")

    def first(entries: int, *names: str) -> Tensor:
        stored = [name for name in names if name in weights] or [names[0]]
        found = weights.take(stored[0], entries, config.whole("d_model"))
        weights.drop(stored[1:])
        return found

    if tied and one:
        return (first(targets, shared, source, target, output),) * 3
    if tied:
        both = first(targets, target, output)
        return first(sources, source, shared), both, both
    apart = first(sources, source), first(targets, target), first(targets, output)
    weights.drop([shared])
    return apart


def _positions(weights: ForeignWeights, recipe: Recipe) -> tuple[Tensor | None, dict[str, Any]]:
    """The stored table of positional encodings, and the recipe's fields for learned positions.

    The table is [positions, d_model]. Returns None and no fields if no table is stored. Also
    returns None and no fields if the stored tables hold the sinusoids of §3.5 with all sines before
    all cosines, because regard computes such sinusoids itself. Other tables must be equal for
    encoder and decoder; if they are not, raises ModelError.
    """
    names = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    d_model = recipe.model.d_model
    tables = [weights.take(name, -1, d_model) for name in names if name in weights]
    if all(map(_are_usual, tables)):
        return None, {}
    if len(tables) != 2 or not torch.equal(*tables):
        raise ModelError(
            f"{names[0]}: the positions are no sinusoids of §3.5, and encoder and decoder do not "
            "have equal tables of them: no model here has one of each kind, or two tables"
        )
    return learned_positions(tables[0], recipe)


def _are_usual(table: Tensor) -> bool:
    """Whether a table nearly equals the sinusoids of §3.5, all sines before all cosines."""
    return torch.allclose(table, sinusoids_in_halves(*table.shape), rtol=0, atol=1e-4)


def _checksums(directory: Path, weights: Path, tokenizer: SentencePieceTokenizer) -> dict[str, str]:
    names = "config.json", "generation_config.json", weights.name, "tokenizer_config.json"
    found = {name: checksum_of(directory / name) for name in names if (directory / name).exists()}
    return found | {name: file.checksum for name, file in tokenizer.files.items()}
