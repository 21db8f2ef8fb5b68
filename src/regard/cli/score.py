"""`regard score`: how close translations are to their references."""

import json
from pathlib import Path
from typing import Annotated

import typer


def score(
    hypothesis: Annotated[
        Path, typer.Argument(help="Translations, one sentence a line; - is standard input.")
    ],
    reference: Annotated[
        list[Path], typer.Option("--reference", "-r", help="Their reference; may be repeated.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Score detokenised translations: BLEU, chrF and TER, with sacreBLEU's signatures.

    Examples:

    `regard translate runs/x < in.txt | regard score - --reference ref.txt`

    `regard score out.txt --reference ref-1.txt --reference ref-2.txt --json`
    """
    from dataclasses import asdict

    from regard.errors import DataError
    from regard.score.bleu import score as score_corpus
    from regard.text.files import read_lines

    if sum(str(path) == "-" for path in (hypothesis, *reference)) > 1:
        raise DataError("can be read only once: save it in a file first", "standard input")
    translations, *references = (list(read_lines(path)) for path in (hypothesis, *reference))
    for path, lines in zip((hypothesis, *reference), (translations, *references), strict=True):
        if not lines:
            raise DataError("is empty: there is nothing to score", path)
        if len(lines) != len(translations):
            raise DataError(
                f"has {len(lines)} lines for {len(translations)} translations: give one reference "
                "line for each, in the same order",
                path,
            )
    scores = score_corpus(translations, references)
    if as_json:
        typer.echo(json.dumps(asdict(scores)))
        return
    names = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}
    for field, name in names.items():
        typer.echo(f"{name:<5} {getattr(scores, field):6.2f}  {scores.signatures[field]}")
