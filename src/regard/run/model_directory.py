"""A model directory: recipe.toml, tokenizer.json, model.safetensors, manifest.json.

If the tokenizer comes from another system, the original files of the tokenizer are also in the
directory. A model directory is all that a user passes on to others. Its files hold data and no
code, and are verified before use, so that a model from somebody else can be opened safely.
"""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import Tensor

from regard.arithmetic.choose import for_inference
from regard.data.pairs import is_prepared
from regard.encoder_decoder import EncoderDecoder
from regard.errors import ModelError, RecipeError
from regard.families.choose import new_model
from regard.files.manifest import MANIFEST, replace_sealed, unseal, write_sealed
from regard.files.tensors import read_tensors, write_tensors
from regard.machine.devices import random_numbers_kept
from regard.paper import parameters
from regard.recipe import ModelRecipe, Recipe
from regard.text.opening import open_tokenizer
from regard.text.protocol import AnyTokenizer
from regard.word_positions import know_words

MOST_LOGITS = 2**26
"""The most logits (beam x vocabulary) that a search step may compute for a sentence.

A model whose recipe needs more is refused. This many logits take 256 MiB, and ranking them takes
more memory.
"""
MODEL_FILES = ("recipe.toml", "tokenizer.json", "model.safetensors", MANIFEST)
EXPORTED = "exported"
"""The key in a manifest under which the format of an exported directory is named."""


@dataclass(frozen=True)
class Model:
    """The content of a model directory, opened."""

    recipe: Recipe
    tokenizer: AnyTokenizer
    network: EncoderDecoder
    manifest: dict[str, Any]


def write_model(
    directory: Path,
    recipe: Recipe,
    tokenizer: AnyTokenizer,
    weights: dict[str, Tensor],
    about: dict[str, Any],
) -> None:
    """Write a model into a new directory, or replace only the model in an existing one.

    `about` goes into the manifest; an example is {"step": 100000}. Raises RegardError if the model
    cannot be written; the directory then has the old model, undamaged, or no model.
    """

    def fill(folder: Path) -> None:
        (folder / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")
        tokenizer.save(folder / "tokenizer.json")
        write_tensors(folder / "model.safetensors", weights)

    write = replace_sealed if directory.exists() else write_sealed
    write(directory, fill, about)


def open_model(directory: str | Path, dtype: torch.dtype = torch.float32) -> Model:
    """Open and verify a model directory, with the weights in the precision `dtype`.

    The model is on the CPU, in evaluation mode. Raises ModelError if the directory is not a model
    or is damaged, if its recipe, tokenizer and weights do not fit together, or if a search step
    would compute more than MOST_LOGITS logits for a sentence. Raises MissingExtra if a library that
    the tokenizer needs is not installed.
    """
    directory = Path(directory)
    if not directory.is_dir():
        problem = (
            "is a file: name the directory that holds it"
            if directory.exists()
            else ("no such model directory: name one that regard train or regard average made")
        )
        raise ModelError(f"{directory}: {problem}")
    quoted = quote(str(directory))
    if not (directory / MANIFEST).exists() and (directory / "checkpoints").is_dir():
        raise ModelError(
            f"{directory}: training has not finished: continue with regard train --out {quoted}, "
            f"or average its checkpoints: regard average {quoted} --out MODEL"
        )
    if is_prepared(directory):
        raise ModelError(
            f"{directory}: is prepared data and not a model: train a model on it with regard "
            f"train --data {quoted}"
        )
    manifest = unseal(directory)
    if EXPORTED in manifest:
        raise _exported(directory, manifest[EXPORTED])
    for name in MODEL_FILES[:-1]:
        if name not in manifest["files"]:
            raise ModelError(
                f"{directory}: is not a model, because its manifest does not list {name}: name a "
                "directory that regard train or regard average made"
            )
    recipe = recipe_in(directory)
    tokenizer = open_tokenizer(directory)
    if recipe.search.beam * tokenizer.size > MOST_LOGITS:
        raise ModelError(
            f"{directory}: a beam of {recipe.search.beam} is too wide for a vocabulary of "
            f"{tokenizer.size:,} pieces: do not use this model"
        )
    if misfit := matrices_misfit(recipe.model, tokenizer):
        raise ModelError(f"{directory}: {misfit}")
    weights = read_tensors(directory / "model.safetensors")
    network = build(recipe, tokenizer, weights, directory)
    network.to(dtype).eval().compute_by(for_inference(torch.device("cpu"), dtype))
    return Model(recipe, tokenizer, network, manifest)


def recipe_in(directory: Path) -> Recipe:
    """The recipe of a model; raises ModelError if it cannot be read."""
    try:
        return Recipe.read(directory / "recipe.toml")
    except RecipeError as error:
        raise ModelError(str(error)) from None


def _exported(directory: Path, kind: str) -> ModelError:
    """The error to raise for an exported directory, whose weights are not in regard's format."""
    other = f"translate or serve it with --engine {kind}"
    other = "read it back with regard import hf" if kind == "hf" else other
    return ModelError(f"{directory}: was exported for {kind}: name the original model, or {other}")


def matrices_misfit(recipe: ModelRecipe, tokenizer: AnyTokenizer) -> str | None:
    """The reason why the recipe's embeddings do not fit the tokenizer's vocabularies, or None.

    Source and target with different vocabularies cannot share a matrix, even if both vocabularies
    have the same size.
    """
    if tokenizer.shared or recipe.embeddings in ("target", "apart"):
        return None
    return (
        "source and target have vocabularies of their own, and model.embeddings = "
        f'"{recipe.embeddings}" uses one matrix for both: set it to "target" or "apart"'
    )


def build(
    recipe: Recipe, tokenizer: AnyTokenizer, weights: dict[str, Tensor], where: Path
) -> EncoderDecoder:
    """An EncoderDecoder with these weights, in fp32 on the CPU.

    Raises ModelError if the weights do not fit the recipe or are not fp32. The message begins with
    `where`. The recipe must fit the tokenizer: `matrices_misfit` must have returned None.
    """
    sizes = tokenizer.size, tokenizer.source_size
    asked, given = parameters(recipe.model, *sizes), sum(w.numel() for w in weights.values())
    # Sizes are compared before the model is built: a model far too large may not fit the memory.
    if asked > 2 * given:
        raise ModelError(
            f"{where}: the weights do not fit recipe.toml: the recipe needs {asked:,} numbers, and "
            f"the weights have {given:,}"
        )
    with torch.device("meta"):
        shapes = {name: p.shape for name, p in new_model(recipe.model, *sizes).named_parameters()}
    for name in sorted(shapes.keys() | weights.keys()):
        expected, found = shapes.get(name), weights[name].shape if name in weights else None
        if expected != found:
            raise ModelError(
                f"{where}: the weights do not fit recipe.toml: {name} is "
                f"{'missing' if found is None else list(found)}, "
                f"the recipe has {'no such weight' if expected is None else list(expected)}"
            )
        if weights[name].dtype != torch.float32:
            raise ModelError(f"{where}: the weights are not fp32: {name} is {weights[name].dtype}")
    with random_numbers_kept(torch.device("cpu")):
        network = new_model(recipe.model, *sizes).float()
    network.load_state_dict(weights)
    know_words(network, tokenizer)
    return network
