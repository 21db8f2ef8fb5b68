"""`regard translate`: standard input to standard output, in order."""

import json
import sys
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
        bool, typer.Option("--split", help="Split over-long sentences, not refuse them.")
    ] = False,
    window: Annotated[
        int,
        typer.Option(
            min=1, max=10**6, help="Lines read, sorted by length and translated together."
        ),
    ] = 2048,
    precision: Annotated[str, typer.Option(help="fp32, bf16, int8 or auto.")] = "fp32",
    threads: Annotated[int, typer.Option(min=0, help="Processor cores; 0 is all.")] = 0,
) -> None:
    """Translate lines of text.

    An empty line gives an empty line. With --n-best each sentence gives up to that many lines, best
    first, as Moses writes them: number from 0 ||| translation ||| score.

    Examples:

    `regard translate runs/x < in.txt > out.txt`

    `regard translate runs/x --beam 1 --json -i in.txt.gz`
    """
    from regard.errors import RecipeError
    from regard.recipe import Recipe
    from regard.run.devices import keep_freed_memory, set_threads
    from regard.text.files import read_lines
    from regard.translate import load

    if precision not in ("fp32", "bf16", "int8", "auto"):
        raise RecipeError(f"--precision {precision}: it is fp32, bf16, int8 or auto")
    set_threads(threads)
    keep_freed_memory()
    translator = load(model, precision=precision)
    given = {"beam": beam, "alpha": alpha}
    changes = {name: value for name, value in given.items() if value is not None}
    translator.recipe = Recipe(search=translator.recipe).but(**changes).search
    if n_best > translator.recipe.beam:
        raise RecipeError(
            f"--n-best {n_best} is more than the beam of {translator.recipe.beam}: raise --beam too"
        )
    where = "standard input" if str(input) == "-" else str(input)
    lines = read_lines(input)
    if str(input) == "-" and sys.stdin.isatty():
        window = 1  # somebody types, and waits
    streamed = translator.stream(lines, n_best=n_best, split=split, window=window, where=where)
    for number, found in enumerate(streamed):
        if as_json:
            best = [{"text": t.text, "score": round(t.score, 6)} for t in found]
            typer.echo(json.dumps({"translations": best}, ensure_ascii=False))
        elif n_best == 1:
            typer.echo(_on_one_line(found[0].text))
        else:
            for t in found:
                typer.echo(f"{number} ||| {_on_one_line(t.text)} ||| {t.score:.6f}")


def _on_one_line(text: str) -> str:
    # No trained model writes a line's end inside a line, but its symbols can spell one.
    return text.replace("\n", " ").replace("\r", " ")
