"""Facts about a training that are in the files of its run or model, but not in its recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from regard.data.pairs import is_prepared, prepared_manifest
from regard.departures.case import Facts
from regard.errors import ModelError
from regard.files.manifest import MANIFEST, unseal
from regard.recipe import Recipe
from regard.run.beginning import begun
from regard.run.journal import read_journal
from regard.run.model_directory import EXPORTED
from regard.text.opening import open_tokenizer


class _Known(BaseModel):
    """Base class for JSON objects that other programs may have written; ignores unknown fields."""

    model_config = ConfigDict(strict=True)


class _About(_Known):
    """The manifest of a model."""

    step: int | None = None
    imported: dict[str, Any] | None = None
    averaged: list[int] | None = None
    tuned: list[Any] | None = None


class _Record(_Known):
    """A record of the journal; only a `start` record has all of these fields."""

    event: str
    step: int = 0
    pairs: int | None = None
    device: str | None = None
    dtype: str | None = None


class _Counts(_Known):
    kept: int


class _Data(_Known):
    """The manifest of prepared data."""

    counts: dict[str, _Counts]
    inputs: dict[str, list[Any]]
    mix: list[int] = []
    sample: float | None = None

    @property
    def held_out(self) -> int:
        """How many training pairs were held out to validate; 0 if validation files were given."""
        given = any(files for name, files in self.inputs.items() if name.startswith("valid."))
        return 0 if given else self.counts["valid"].kept


def recipe_and_facts(directory: Path) -> tuple[Recipe, Facts]:
    """The recipe of a run or a model, and the facts that its files show.

    Raises ModelError if the directory holds neither a run nor a model, or if one of its files is
    damaged. Raises the errors of `begun`, `unseal` and `open_tokenizer`. If prepared data is inside
    the directory, also raises the errors of `prepared_manifest`.
    """
    if is_prepared(directory):
        raise ModelError(f"{directory}: is prepared data: name a run, a model or a recipe")
    about = unseal(directory) if (directory / MANIFEST).exists() else None
    recipe = begun(directory)
    if recipe is None:
        raise ModelError(
            f"{directory}: is neither a run nor a model, it has no recipe.toml: name one that "
            "regard train or regard average made, or a recipe"
        )
    try:
        shown = _of_data(directory / "data") | _of_run(directory) | _of_model(about)
    except (ValueError, KeyError):
        raise ModelError(f"{directory}: its manifest or its journal is damaged") from None
    exported = about is not None and EXPORTED in about  # tokenizer.json then has another format
    if (directory / "tokenizer.json").exists() and not exported:
        shown["vocabulary"] = open_tokenizer(directory).size
    return recipe, Facts(**shown)


def _of_data(data: Path) -> dict[str, Any]:
    """Facts that prepared data shows."""
    if not (data / MANIFEST).is_file():
        return {}
    prepared = _Data.model_validate(prepared_manifest(data))
    pairs = prepared.counts["train"].kept
    shown = {"pairs": pairs, "sample": prepared.sample, "held_out": prepared.held_out}
    return shown | {"mix": tuple(prepared.mix)}


def _of_run(directory: Path) -> dict[str, Any]:
    """Facts from the files of a run: its journal, and from.json.

    The journal has the steps that were made and, in its last `start` record, the number of pairs,
    the dtype and the device. If from.json exists, training began with the weights of another model.
    """
    if not (directory / "journal.jsonl").is_file():
        return {}
    records = [_Record.model_validate(one) for one in read_journal(directory / "journal.jsonl")]
    done = [one.step for one in records if one.event in ("step", "save")]
    shown: dict[str, Any] = {"begins_with_model": (directory / "from.json").exists()}
    shown["steps"] = max(done, default=0)
    for one in records:
        if one.event == "start":
            shown |= {"pairs": one.pairs, "dtype": one.dtype, "device": one.device}
    return shown


def _of_model(manifest: dict[str, Any] | None) -> dict[str, Any]:
    """Facts that the manifest of a finished model shows."""
    if manifest is None:
        return {}
    about = _About.model_validate(manifest)
    if about.step is None:
        if about.imported is None:
            raise ValueError("neither trained nor imported")
        return {}  # another program trained the model, and does not say how
    averaged = tuple(about.averaged) if about.averaged else None
    return {"steps": about.step, "averaged": averaged, "tuned": bool(about.tuned)}
