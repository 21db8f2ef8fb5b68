"""`regard info`: collect the facts about a model from the files of its directory."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.engines.exported import Exported, open_exported
from regard.errors import ModelError
from regard.exchange.certificate import CERTIFICATE, Certificate
from regard.exchange.hf_text import OURS
from regard.files.manifest import read_manifest
from regard.run.journal import last_validation
from regard.run.model_directory import EXPORTED, Model, open_model

_FIGURES = "loss", "perplexity", "accuracy", "bleu", "f1"
"""Names of the figures that `info_of` takes from the last validation."""


def info_of(directory: Path) -> dict[str, Any]:
    """The recipe, sizes, scores, provenance and certificate of a model, or of an exported model.

    The checksums of the files are verified. Raises ModelError if a file is damaged or cannot be
    read, if the directory holds no model, or if it has a certificate that the manifest does not
    list. Raises MissingExtra if a library that the tokenizer needs is not installed.
    """
    opened, parameters = _opened(directory)
    manifest, certificate = opened.manifest, Certificate.read(directory)
    if certificate is not None and CERTIFICATE not in manifest["files"]:
        raise ModelError(f"{directory}: its certificate is not sealed: it may be of another model")
    return {
        "model": str(directory),
        "parameters": parameters,
        "vocabulary": opened.tokenizer.size,
        "source_vocabulary": opened.tokenizer.source_size,
        "bytes": sum((directory / name).stat().st_size for name in manifest["files"]),
        "recipe": opened.recipe.model_dump(),
        "scores": _scores(directory),
        "provenance": {k: v for k, v in manifest.items() if k not in ("files", "format")},
        "certificate": None if certificate is None else certificate.model_dump(),
    }


def _opened(directory: Path) -> tuple[Model | Exported, int | None]:
    """The opened directory and its number of parameters, which is None for an exported model."""
    manifest: dict[str, Any] = {}
    with suppress(OSError, ValueError):  # `open_model`, called below, refuses a damaged manifest
        manifest = read_manifest(directory)
    if EXPORTED in manifest:
        kind = str(manifest[EXPORTED])
        text = OURS if kind == "hf" else "tokenizer.json"
        return open_exported(directory, kind, text), None
    model = open_model(directory)
    return model, model.network.parameter_count


def _scores(directory: Path) -> dict[str, Any]:
    """The step and the figures of the last validation in the journal.

    The dictionary is empty if there is no journal, or no validation in the journal. Damaged lines
    are ignored. Raises ModelError if the journal cannot be read.
    """
    path = directory / "journal.jsonl"
    if not path.is_file():
        return {}
    try:
        last = last_validation(path)
    except (OSError, ValueError, RecursionError):
        raise ModelError(
            f"{path}: cannot be read: make it readable, or remove it and its scores"
        ) from None
    return {key: last[key] for key in ("step", *_FIGURES) if key in last}
