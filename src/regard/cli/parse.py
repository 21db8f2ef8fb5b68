"""`regard parse`: sentences in, trees out, in order."""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

if TYPE_CHECKING:
    from regard.parsing import Parse
    from regard.trees.tree import Tree


def parse(
    model: Annotated[Path, typer.Argument(help="A model or run directory of a parser.")],
    input: Annotated[  # noqa: A002
        Path, typer.Option("--input", "-i", help="Text, one sentence a line; - is standard input.")
    ] = Path("-"),
    tokenised: Annotated[
        bool, typer.Option("--tokenised", help="Words stand between blanks already.")
    ] = False,
    pretty: Annotated[
        bool, typer.Option("--pretty", help="Each tree over several lines, a level further in.")
    ] = False,
    draw: Annotated[bool, typer.Option("--draw", help="Draw the trees.")] = False,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Draw the tree of line N into FOLDER/N.svg as well."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines with scores.")] = False,
    write_silver: Annotated[
        float | None,
        typer.Option(
            metavar="THRESHOLD",
            help="Only trees of at least this log p per word, each after its own and a tab.",
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

    `regard parse runs/p --pretty --svg drawings < text.txt`

    `regard parse runs/p --tokenised < words.txt > test.trees`

    `regard parse runs/p --write-silver=-0.1 < news.txt > silver.trees`
    """
    from regard.errors import RecipeError
    from regard.files.lines import read_lines
    from regard.machine.devices import keep_freed_memory, set_threads
    from regard.parsing import by_blanks, load, treebank_words

    if pretty + draw + as_json + (write_silver is not None) > 1:
        raise RecipeError("--pretty, --draw, --json and --write-silver exclude one another")
    _refuse_values(write_silver, svg)
    split = by_blanks if tokenised else treebank_words()
    set_threads(threads)
    keep_freed_memory()
    parser = load(model, precision=precision)
    if beam is not None:
        parser.recipe = parser.recipe.but(beam=beam)
    if str(input) == "-" and sys.stdin.isatty():
        window = 1  # somebody types, and waits
    sentences = map(split, read_lines(input))
    for number, best in enumerate(parser.stream(sentences, window=window), start=1):
        if write_silver is not None:
            lines = _silver(best, write_silver)
        elif as_json:
            lines = [_json(best)]
        else:
            lines = [_tree(best[0].tree, pretty, draw, sys.stdout) if best else ""]
        for line in lines:
            typer.echo(line)
        if svg is not None and best:
            _write_svg(svg / f"{number}.svg", best[0].tree)


def _refuse_values(write_silver: float | None, svg: Path | None) -> None:
    from regard.errors import RecipeError

    if write_silver is not None and not math.isfinite(write_silver):
        raise RecipeError(f"--write-silver {write_silver}: it is a log p per word, as -0.1")
    if svg is not None and svg.exists() and not svg.is_dir():
        raise RecipeError(f"--svg {svg}: is a file: name a folder")


def _silver(best: "Sequence[Parse]", threshold: float) -> list[str]:
    from regard.parsing import is_confident, treebank_line

    return [
        f"{one.confidence:.4f}\t{treebank_line(one.tree)}"
        for one in best
        if is_confident(one, threshold)
    ]


def _json(best: "Sequence[Parse]") -> str:
    from regard.parsing import treebank_line

    if not best:
        return json.dumps({"tree": None})
    one = best[0]
    found = {"tree": treebank_line(one.tree), "score": one.score, "confidence": one.confidence}
    return json.dumps(found, ensure_ascii=False)


def _tree(tree: "Tree", pretty: bool, draw: bool, to: TextIO) -> str:
    from regard.parsing import in_treebank, treebank_line
    from regard.trees import penn
    from regard.trees.draw import drawn

    if draw:
        return drawn(tree, _columns(to))
    return penn.pretty(in_treebank(tree)) if pretty else treebank_line(tree)


def _write_svg(path: Path, tree: "Tree") -> None:
    """Draw a tree into a file, whose folder is made."""
    from regard.files.whole import refusing_write_errors, write_file
    from regard.trees.svg import svg

    with refusing_write_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, svg(tree) + "\n")


def _columns(to: TextIO) -> int | None:
    """Of the terminal; no limit in a file."""
    from shutil import get_terminal_size

    return get_terminal_size().columns if to.isatty() else None
