"""`regard info`: everything that a model directory says about itself."""

from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.exchange.certificate import Certificate
from regard.run.journal import read_journal
from regard.run.model_directory import open_model

_FIGURES = "loss", "perplexity", "accuracy", "bleu", "f1"
"""Figures of a validation that are shown."""


def info_of(directory: Path) -> dict[str, Any]:
    """The recipe, sizes, scores, provenance and certificate of a model, which is verified.

    Raises ModelError if it is not a model, or damaged.
    """
    model = open_model(directory)
    certificate = Certificate.read(directory)
    if certificate is not None and "certificate.json" not in model.manifest["files"]:
        raise ModelError(f"{directory}: its certificate is not sealed: it may be of another model")
    transformer, manifest = model.transformer, model.manifest
    size = sum((directory / name).stat().st_size for name in manifest["files"])
    return {
        "model": str(directory),
        "parameters": transformer.parameter_count,
        "vocabulary": model.tokenizer.size,
        "source_vocabulary": model.tokenizer.source_size,
        "bytes": size,
        "recipe": model.recipe.model_dump(),
        "scores": _scores(directory),
        "provenance": {k: v for k, v in manifest.items() if k not in ("files", "format")},
        "certificate": None if certificate is None else certificate.model_dump(),
    }


def _scores(directory: Path) -> dict[str, Any]:
    """The last validation in a run's journal; empty if there is none."""
    path = directory / "journal.jsonl"
    if not path.is_file():
        return {}
    try:
        found = [r for r in read_journal(path) if isinstance(r, dict)]
    except (OSError, ValueError, RecursionError):
        raise ModelError(f"{path}: damaged: remove it to see the model without scores") from None
    validations = [r for r in found if r.get("event") == "validation"]
    last = validations[-1] if validations else {}
    return {key: last[key] for key in ("step", *_FIGURES) if key in last}
