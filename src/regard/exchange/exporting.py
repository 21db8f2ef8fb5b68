"""Export a model of regard for another program, and compare the results of both programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard import __version__
from regard.engines.exported import Exported
from regard.engines.opening import translator_by
from regard.errors import DataError, ModelError, RecipeError, unknown
from regard.exchange.certificate import TOLERANCE, Certificate, Side, certify, unproved
from regard.exchange.certified import refuse_existing, write_certified
from regard.exchange.engine_side import EngineSide
from regard.exchange.parts import tables_of
from regard.exchange.sentences import SENTENCES
from regard.exchange.sides import OurSide
from regard.files.lines import read_lines, shown_name
from regard.files.manifest import SEAL
from regard.recipe import SearchRecipe
from regard.run.model_directory import EXPORTED, Model, open_model

EXPORT_FORMATS = ("hf", "ctranslate2", "onnx", "argos")
"""The formats to which a model can be exported."""
PRECISIONS = ("fp32", "int8", "int8_float32", "bfloat16")
"""The number formats of an export to ctranslate2 or argos; the other exports are in fp32."""


def write_export(
    format: str,  # noqa: A002
    directory: Path,
    out: Path,
    *,
    precision: str = "fp32",
    changes: Sequence[str] = (),
    pair: str = "",
    text: Sequence[Path] = (),
) -> Certificate:
    """Write the model in `directory` to `out` for another program; return the certificate.

    `format` is one of EXPORT_FORMATS, and `precision` is the number format, one of PRECISIONS.
    `changes` replace settings of the beam search; an example is "search.alpha=0". `pair` and `text`
    are only for argos: `pair` names the languages, such as "en-de". `text` names two files or more,
    with text of both languages; the exported tokenizer is tested on their lines. After an error,
    nothing is left behind.

    Raises RecipeError for an invalid option; ModelError if the model cannot be opened, if the
    format cannot represent the model, if the exported tokenizer fails its test, or if logits differ
    too much; MissingExtra if a package that the export needs is not installed; DataError for a file
    of `text` that has no text or cannot be read; RegardError if `out` cannot be written, or exists
    and is not an empty directory.
    """
    _check(format, precision, changes, pair, text)
    refuse_existing(out)
    model = open_model(directory)
    if model.recipe.task.output != "text":
        raise ModelError(f"{directory}: is a parser; only translators can be exported")
    if (family := model.recipe.model.family) != "transformer":
        raise ModelError(
            f"{directory}: is of the {family} family; only Transformers can be exported"
        )
    if reach := model.recipe.model.neighbourhood:
        raise ModelError(f"{directory}: model.neighbourhood = {reach} is not in any export format")
    if not model.recipe.model.causal:
        raise ModelError(f"{directory}: model.causal = false is not in any export format")
    model = replace(model, recipe=model.recipe.set(*changes))
    if format == "hf":
        return _to_hf(model, out)
    if format == "argos":
        return _to_argos(model, out, precision, pair, text)
    if format == "ctranslate2":
        return _to_ctranslate2(model, out, precision)
    return _to_onnx(model, out)


def _check(
    format: str,  # noqa: A002
    precision: str,
    changes: Sequence[str],
    pair: str,
    text: Sequence[Path],
) -> None:
    if format not in EXPORT_FORMATS:
        raise unknown("format", format, list(EXPORT_FORMATS))
    if precision not in PRECISIONS:
        raise unknown("precision", precision, list(PRECISIONS))
    if precision != "fp32" and format not in ("ctranslate2", "argos"):
        raise RecipeError(
            f"--precision {precision}: regard export {format} writes fp32: leave it out"
        )
    if format != "argos" and (pair or text):
        option = f"--pair {pair}" if pair else "--text"
        raise RecipeError(f"{option}: regard export {format} needs none: leave it out")
    for change in changes:
        if not change.strip().startswith("search."):
            raise RecipeError(f"--set {change}: an export can change only the search: search.KEY")


def _to_hf(model: Model, out: Path) -> Certificate:
    from regard.exchange.hf_side import exported_side
    from regard.exchange.hf_vocabulary import MarianVocabulary
    from regard.exchange.to_hf import positions_of, write_hf

    def fill(folder: Path) -> None:
        write_hf(model, folder)
        (folder / "recipe.toml").write_text(model.recipe.to_toml(), encoding="utf-8")

    def prove(folder: Path) -> Certificate:
        try:
            theirs = exported_side(folder, MarianVocabulary.of(model))
        except ModuleNotFoundError:
            why, versions = "transformers is not installed", OurSide(model).versions
            return unproved("regard to hf", why, versions, model.manifest["files"])
        return _certified(model, theirs, "hf", positions_of(model), TOLERANCE)

    return write_certified(out, fill, prove, _about(model, "hf", positions_of(model)))


def _to_argos(
    model: Model, out: Path, precision: str, pair: str, text: Sequence[Path]
) -> Certificate:
    from regard.exchange.to_argos import write_argos

    tolerance, positions = _tolerance(precision), len(tables_of(model).target)

    def prove(folder: Path) -> Certificate:
        exported = Exported(folder, model.recipe, model.tokenizer, {"positions": positions})
        theirs = EngineSide(translator_by("ctranslate2")(exported, 1), _rules(model, "argos"))
        return _certified(model, theirs, "argos", positions, tolerance)

    if len(text) < 2:
        raise RecipeError(
            "--text twice, once for each language: export argos proves on these lines that "
            "SentencePiece cuts and joins them as the model's tokenizer does"
        )
    lines = list[str]()
    for path in text:
        its = list(read_lines(path))
        if not any(map(str.strip, its)):
            raise DataError("has no text: give lines of one language", shown_name(path))
        lines += its
    return write_argos(model, out, pair, lines, precision, prove)


def _tolerance(precision: str) -> float | None:
    return TOLERANCE if precision == "fp32" else None


def _to_ctranslate2(model: Model, out: Path, precision: str) -> Certificate:
    from regard.exchange.to_ctranslate2 import write_ctranslate2

    return _write(
        model, out, "ctranslate2", lambda folder: write_ctranslate2(model, folder, precision),
        _tolerance(precision), {"precision": precision},
    )  # fmt: skip


def _to_onnx(model: Model, out: Path) -> Certificate:
    # If ONNX Runtime is missing, `translator_by` raises here, before anything is written.
    translator_by("onnx")
    from regard.exchange.to_onnx import write_onnx

    return _write(model, out, "onnx", lambda folder: write_onnx(model, folder), TOLERANCE, {})


def _write(
    model: Model,
    out: Path,
    format: str,  # noqa: A002
    fill: Callable[[Path], None],
    tolerance: float | None,
    facts: dict[str, Any],
) -> Certificate:
    """Make the directory `out` for CTranslate2 or ONNX Runtime, and return the certificate.

    `fill` writes the files of that program into a folder. regard's recipe and tokenizer are written
    into the same folder. `facts` become entries of the manifest.
    """
    positions = len(tables_of(model).target)
    about = _about(model, format, positions) | facts

    def write(folder: Path) -> None:
        fill(folder)
        (folder / "recipe.toml").write_text(model.recipe.to_toml(), encoding="utf-8")
        model.tokenizer.save(folder / "tokenizer.json")

    def prove(folder: Path) -> Certificate:
        exported = Exported(folder, model.recipe, model.tokenizer, about)
        theirs = EngineSide(translator_by(format)(exported, 1), _rules(model, format))
        return _certified(model, theirs, format, positions, tolerance)

    return write_certified(out, write, prove, about)


def _about(model: Model, format: str, positions: int) -> dict[str, Any]:  # noqa: A002
    """The entries of the exported model's manifest that do not depend on the export's precision.

    The entries of `model`'s own manifest are copied, except those in SEAL, which `seal` writes. The
    name of the export's format ("onnx"), the number of positions and regard's version are added.
    """
    provenance = {key: value for key, value in model.manifest.items() if key not in SEAL}
    return {**provenance, EXPORTED: format, "positions": positions, "by": __version__}


def _rules(model: Model, format: str) -> SearchRecipe:  # noqa: A002
    """The settings of the search with which `model` and its export are compared."""
    search = model.recipe.search
    rules = search if format == "onnx" else search.but(finish="beam")
    # `transformers` lacks GNMT's length penalty (§6.1). If the recipe has this penalty, both models
    # search without a penalty: alpha = 0.
    if format == "hf" and search.penalty != "length":
        rules = rules.but(penalty="length", alpha=0.0)
    return rules


def _certified(
    model: Model,
    theirs: Side,
    format: str,  # noqa: A002
    positions: int,
    tolerance: float | None,
) -> Certificate:
    """Compare `model` with `theirs`, the exported model, and return the certificate.

    Both models search with the same settings. Raises ModelError as `certify` does.
    """
    rules = _rules(model, format)
    return certify(
        OurSide(model, rules),
        theirs,
        [sentence for sentence in SENTENCES if sentence.strip()],  # blank lines are not translated
        conversion=f"regard to {format}",
        files=model.manifest["files"],
        longest=min(model.recipe.data.max_length, positions),
        alpha=rules.alpha,
        penalty=rules.penalty,
        tolerance=tolerance,
    )
