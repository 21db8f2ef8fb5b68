"""An exported directory: a model in the files of an engine, with recipe, tokenizer and checksums.

An engine is a program that computes the model in place of regard: CTranslate2 or ONNX Runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.files.manifest import unseal
from regard.recipe import Recipe
from regard.run.model_directory import EXPORTED, recipe_in
from regard.text.opening import open_tokenizer
from regard.text.protocol import AnyTokenizer


@dataclass(frozen=True)
class Exported:
    """An opened exported directory, whose model the engine has not loaded yet."""

    directory: Path
    recipe: Recipe
    tokenizer: AnyTokenizer
    manifest: dict[str, Any]


def open_exported(directory: Path, engine: str, text: str = "tokenizer.json") -> Exported:
    """Open a directory that was exported for this engine, and verify the checksums of its files.

    `engine` may also be "hf", for an export to `transformers`. `text` is the name of the
    tokenizer's file. Raises ModelError if the directory does not exist or was not exported for the
    engine, if a file is missing or damaged, or if the manifest lacks an entry that every export
    writes. Raises MissingExtra if a library that the tokenizer needs is not installed.
    """
    if not directory.is_dir():
        raise ModelError(
            f"{directory}: no such directory: make it with regard export {engine} MODEL --out "
            f"{directory}"
        )
    manifest = unseal(directory)
    kind = manifest.get(EXPORTED)
    if kind != engine:
        what = "a model of regard" if kind is None else f"exported for {kind}"
        raise ModelError(
            f"{directory}: is {what}, not exported for {engine}: make such a directory with regard "
            f"export {engine} MODEL --out DIR"
        )
    for name in ("recipe.toml", text):
        if name not in manifest["files"]:
            raise ModelError(f"{directory}: its manifest does not list {name}: export it again")
    if type(manifest.get("positions")) is not int:
        raise ModelError(f"{directory}: its manifest has no number of positions: export it again")
    return Exported(directory, recipe_in(directory), open_tokenizer(directory / text), manifest)
