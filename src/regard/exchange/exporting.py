"""Write a model of regard for other programs, with the proof that nothing changed on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard import __version__
from regard.engines.exported import EXPORTED, Exported
from regard.errors import ModelError, RecipeError, unknown
from regard.exchange.certificate import TOLERANCE, Certificate, certify
from regard.exchange.certified import refuse_existing, write_certified
from regard.exchange.engine_side import EngineSide
from regard.exchange.parts import tables_of
from regard.exchange.sentences import SENTENCES
from regard.exchange.sides import OurSide
from regard.files.manifest import SEAL
from regard.run.model_directory import Model, open_model

EXPORT_FORMATS = ("ctranslate2", "onnx")
"""Formats that a model can be exported to."""
PRECISIONS = ("fp32", "int8", "int8_float32", "bfloat16")
"""Numbers in which CTranslate2 can keep a model."""


def write_export(
    format: str,  # noqa: A002
    directory: Path,
    out: Path,
    *,
    precision: str = "fp32",
    changes: Sequence[str] = (),
) -> Certificate:
    """Write the model in `directory` to `out` for another program, and prove it.

    `changes` are fields of the search to go with it, such as "search.alpha=0". Raises RecipeError
    for an unknown format or precision, ModelError if the format has no such model or the proof
    fails, MissingExtra if a package is not installed; then nothing is left behind.
    """
    _check(format, precision, changes)
    refuse_existing(out)
    model = open_model(directory)
    if model.recipe.task.output != "text":
        raise ModelError(f"{directory}: is a parser; only translators can be exported")
    recipe = model.recipe.set(*changes)
    model = Model(recipe, model.tokenizer, model.transformer, model.manifest)
    if format == "ctranslate2":
        return _to_ctranslate2(model, out, precision)
    return _to_onnx(model, out)


def _check(format: str, precision: str, changes: Sequence[str]) -> None:  # noqa: A002
    if format not in EXPORT_FORMATS:
        raise unknown("format", format, list(EXPORT_FORMATS))
    if precision not in PRECISIONS:
        raise unknown("precision", precision, list(PRECISIONS))
    if precision != "fp32" and format not in ("ctranslate2", "argos"):
        raise RecipeError(
            f"--precision {precision}: regard export {format} writes fp32: leave it out"
        )
    for change in changes:
        if not change.strip().startswith("search."):
            raise RecipeError(f"--set {change}: an export can change only the search: search.KEY")


def _to_ctranslate2(model: Model, out: Path, precision: str) -> Certificate:
    from regard.engines.with_ctranslate2 import CTranslate2Model, CTranslate2Translator
    from regard.exchange.to_ctranslate2 import write_ctranslate2

    def opened(exported: Exported) -> EngineSide:
        translator = CTranslate2Translator(CTranslate2Model(exported, 1), exported)
        return EngineSide(translator)

    tolerance = TOLERANCE if precision == "fp32" else None
    return _write(
        model, out, "ctranslate2", lambda folder: write_ctranslate2(model, folder, precision),
        opened, tolerance, {"precision": precision},
    )  # fmt: skip


def _to_onnx(model: Model, out: Path) -> Certificate:
    from regard.engines.with_onnx import OnnxModel, OnnxTranslator
    from regard.exchange.to_onnx import write_onnx

    def opened(exported: Exported) -> EngineSide:
        return EngineSide(OnnxTranslator(OnnxModel(exported, 1), exported))

    return _write(
        model, out, "onnx", lambda folder: write_onnx(model, folder), opened, TOLERANCE, {}
    )


def _write(
    model: Model,
    out: Path,
    format: str,  # noqa: A002
    fill: Callable[[Path], None],
    opened: Callable[[Exported], EngineSide],
    tolerance: float | None,
    facts: dict[str, Any],
) -> Certificate:
    """Make the directory: the engine's files, our recipe and tokenizer, and the certificate."""
    positions = len(tables_of(model).target)
    longest = min(model.recipe.data.max_length, positions)
    provenance = {key: value for key, value in model.manifest.items() if key not in SEAL}
    about = {**provenance, **facts, EXPORTED: format, "positions": positions, "by": __version__}

    def write(folder: Path) -> None:
        fill(folder)
        (folder / "recipe.toml").write_text(model.recipe.to_toml(), encoding="utf-8")
        model.tokenizer.save(folder / "tokenizer.json")

    def prove(folder: Path) -> Certificate:
        exported = Exported(folder, model.recipe, model.tokenizer, about)
        # No engine is given an empty sentence: a blank line stays blank.
        sentences = [sentence for sentence in SENTENCES if sentence.strip()]
        return certify(
            OurSide(model), opened(exported), sentences, conversion=f"regard to {format}",
            files=model.manifest["files"], longest=longest, beam=4, alpha=model.recipe.search.alpha,
            penalty="gnmt", tolerance=tolerance,
        )  # fmt: skip

    return write_certified(out, write, prove, about)
