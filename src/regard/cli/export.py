"""`regard export`: a model for the programs that people already serve and publish with."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import ModelArgument, SetOption

_FormatArgument = Annotated[str, typer.Argument(metavar="FORMAT", help="ctranslate2 or onnx.")]
_OutOption = Annotated[Path, typer.Option("--out", help="The directory to make.")]
_PrecisionOption = Annotated[
    str,
    typer.Option("--precision", help="For ctranslate2: fp32, int8, int8_float32 or bfloat16."),
]


def export(
    format: _FormatArgument,  # noqa: A002
    model: ModelArgument,
    out: _OutOption,
    precision: _PrecisionOption = "fp32",
    changes: SetOption = None,
) -> None:
    """Write a model for other programs, with a certificate that nothing changed on the way.

    The same sentences go through both sides: their logits are compared, and what they write. If
    logits in fp32 differ by more than 1e-4 of their range, nothing is left behind. The certificate
    lies in the directory. `--set search.KEY=VALUE` sets the search that goes with the model.

    Examples:

    - `regard export ctranslate2 runs/x --out x-ct2 --precision int8 --set search.finish=beam`
    - `regard translate x-ct2 --engine ctranslate2 < in.txt`
    - `regard export onnx runs/x --out x-onnx`
    """
    from regard.exchange.exporting import write_export

    certificate = write_export(format, model, out, precision=precision, changes=changes or ())
    typer.echo(f"{out}: {certificate.summary()}")
