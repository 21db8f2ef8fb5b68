"""`regard translate`: standard input to standard output, in order."""

import json
from pathlib import Path
from typing import Annotated

import typer


def translate(
    model: Annotated[Path, typer.Argument(help="A model or run directory.")],
    input: Annotated[  # noqa: A002
        Path, typer.Option("--input", "-i", help="Text, one sentence a line; - is standard input.")
    ] = Path("-"),
    beam: Annotated[
        int | None, typer.Option(min=1, help="Hypotheses kept alive; 1 is greedy.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(min=0.0, help="Length penalty.")] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Translations of each sentence.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines with scores.")] = False,
    split: Annotated[
        bool, typer.Option(help="Split over-long sentences, not refuse them.")
    ] = False,
    precision: Annotated[str, typer.Option(help="fp32, bf16 or auto.")] = "fp32",
    threads: Annotated[int, typer.Option(min=0, help="Processor cores; 0 is all.")] = 0,
) -> None:
    """Translate lines of text.

    An empty line gives an empty line. With --n-best N each sentence gives N lines, best first.

    Examples:

    `regard translate runs/x < in.txt > out.txt`

    `regard translate runs/x --beam 1 --json -i in.txt.gz`
    """
    from regard.errors import RecipeError
    from regard.run.devices import set_threads
    from regard.text.files import read_lines
    from regard.translate import load

    if precision not in ("fp32", "bf16", "auto"):
        raise RecipeError(f"--precision {precision}: it is fp32, bf16 or auto")
    set_threads(threads)
    translator = load(model, precision=precision)
    changes = {"beam": beam, "alpha": alpha}
    translator.recipe = translator.recipe.model_copy(
        update={name: value for name, value in changes.items() if value is not None}
    )
    if n_best > translator.recipe.beam:
        raise RecipeError(f"--n-best {n_best} is more than the beam of {translator.recipe.beam}")
    where = "standard input" if str(input) == "-" else str(input)
    lines = read_lines(input)
    for found in translator.stream(lines, n_best=n_best, split=split, where=where):
        if as_json:
            best = [{"text": t.text, "score": round(t.score, 6)} for t in found]
            typer.echo(json.dumps({"translations": best}, ensure_ascii=False))
        else:
            for translation in found:
                typer.echo(translation.text)
