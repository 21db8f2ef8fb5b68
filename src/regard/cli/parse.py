"""`regard parse`: sentences in, trees out, in order."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

if TYPE_CHECKING:
    from regard.parse import Parse


def parse(
    model: Annotated[Path, typer.Argument(help="A model or run directory of a parser.")],
    input: Annotated[  # noqa: A002
        Path, typer.Option("--input", "-i", help="Text, one sentence a line; - is standard input.")
    ] = Path("-"),
    tokenised: Annotated[
        bool, typer.Option("--tokenised", help="Words stand between blanks already.")
    ] = False,
    draw: Annotated[bool, typer.Option("--draw", help="Draw the trees.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines with scores.")] = False,
    write_silver: Annotated[
        float | None,
        typer.Option(
            metavar="THRESHOLD",
            help="Only trees whose log p per word is that or more, each after that and a tab.",
        ),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Hypotheses kept alive; 1 is greedy.")
    ] = None,
    window: Annotated[
        int,
        typer.Option(min=1, max=10**6, help="Lines read, sorted by length and parsed together."),
    ] = 2048,
    precision: Annotated[str, typer.Option(help="fp32, bf16, int8 or auto.")] = "fp32",
    threads: Annotated[int, typer.Option(min=0, help="Processor cores; 0 is all.")] = 0,
) -> None:
    """Parse lines of English, one sentence a line, into one bracketed tree a line.

    Raw text is cut into words as the Penn treebank does (extra: parse). An empty line gives an
    empty line, except with --write-silver, which makes trees for regard train --silver.

    Examples:

    `echo "The dog doesn't bark." | regard parse runs/p --draw`

    `regard parse runs/p --tokenised < words.txt > test.trees`

    `regard parse runs/p --write-silver=-0.1 < news.txt > silver.trees`
    """
    from regard.errors import RecipeError
    from regard.parse import by_blanks, load, treebank_words
    from regard.recipe import Recipe
    from regard.run.devices import keep_freed_memory, set_threads
    from regard.text.files import read_lines

    if write_silver is not None and not math.isfinite(write_silver):
        raise RecipeError(f"--write-silver {write_silver}: it is a log p per word, as -0.1")
    if draw + as_json + (write_silver is not None) > 1:
        raise RecipeError("--draw, --json and --write-silver exclude one another: give one")
    split = by_blanks if tokenised else treebank_words()
    set_threads(threads)
    keep_freed_memory()
    parser = load(model, precision=precision)
    if beam is not None:
        parser.recipe = Recipe(search=parser.recipe).but(beam=beam).search
    if str(input) == "-" and sys.stdin.isatty():
        window = 1  # somebody types, and waits
    sentences = map(split, read_lines(input))
    for best in parser.stream(sentences, window=window):
        for line in _shown(best, draw, as_json, write_silver, sys.stdout):
            typer.echo(line)


def _shown(
    best: "Sequence[Parse]", draw: bool, as_json: bool, threshold: float | None, to: TextIO
) -> Iterator[str]:
    """The lines to print for one sentence."""
    from regard.parse import is_confident, treebank_line

    if threshold is not None:
        for one in best:
            if is_confident(one, threshold):
                yield f"{one.confidence:.4f}\t{treebank_line(one.tree)}"
    elif not best:
        yield json.dumps({"tree": None}) if as_json else ""
    elif as_json:
        one = best[0]
        tree = treebank_line(one.tree)
        yield json.dumps(
            {"tree": tree, "score": one.score, "confidence": one.confidence}, ensure_ascii=False
        )
    elif draw:
        from regard.trees.draw import drawn

        yield drawn(best[0].tree, _columns(to))
    else:
        yield treebank_line(best[0].tree)


def _columns(to: TextIO) -> int | None:
    """Of the terminal; no limit in a file."""
    from shutil import get_terminal_size

    return get_terminal_size().columns if to.isatty() else None
