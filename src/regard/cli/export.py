"""`regard export`: writes a model for other programs that serve or publish models."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import note
from regard.cli.options import ModelArgument, SetOption
from regard.cli.preparing import ended_by_sigterm

_FormatArgument = Annotated[
    str, typer.Argument(metavar="FORMAT", help="hf, ctranslate2, onnx or argos.")
]
_OutOption = Annotated[
    Path, typer.Option("--out", help="The directory to make; for argos, a file.")
]
_PrecisionOption = Annotated[
    str,
    typer.Option(
        "--precision", help="For ctranslate2 and argos: fp32, int8, int8_float32 or bfloat16."
    ),
]
_PairOption = Annotated[str, typer.Option("--pair", help="For argos, the languages: en-de.")]
_TextOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--text", help="For argos, text to prove the tokenizer on; twice, once for each language."
    ),
]


def export(
    format: _FormatArgument,  # noqa: A002
    model: ModelArgument,
    out: _OutOption,
    precision: _PrecisionOption = "fp32",
    pair: _PairOption = "",
    text: _TextOption = None,
    changes: SetOption = None,
) -> None:
    """Write a model for another program, and certify that this program computes as regard does.

    The same sentences go through regard and the other program, and the logits and the outputs of
    both are compared. If logits in fp32 differ by more than 1e-4 of their range, nothing is
    written. For hf, the programs are compared only if `transformers` is installed. The certificate
    is in the directory or, for argos, in the package. `--set search.KEY=VALUE` changes a setting of
    the search that is exported with the model.

    Examples:

    - `regard export ctranslate2 runs/x --out x-ct2 --precision int8 --set search.finish=beam`
    - `regard translate x-ct2 --engine ctranslate2 < in.txt`
    - `regard export onnx runs/x --out x-onnx`
    - `regard export hf runs/x --out x-hf`   (MarianMTModel.from_pretrained opens it)
    - `regard export argos runs/x --pair en-de --text in.en --text in.de --out en_de.argosmodel`
    """
    from regard.exchange.exporting import write_export
    from regard.recipe import Recipe

    with ended_by_sigterm():
        certificate = write_export(
            format, model, out,
            precision=precision, changes=changes or (), pair=pair, text=text or (),
        )  # fmt: skip
    typer.echo(f"{out}: {certificate.summary()}")
    if format == "ctranslate2":
        search = Recipe.read(out / "recipe.toml").search
        if search.beam > 1 and search.finish != "beam":
            note("--engine needs --beam 1: export with --set search.finish=beam for a wider beam")
