"""`regard parse`: reads sentences, and writes their trees in the same order."""

import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import json_for_terminal
from regard.cli.options import (
    BeamOption,
    InputOption,
    JsonOption,
    PrecisionOption,
    ThreadsOption,
    window_option,
)
from regard.errors import RecipeError
from regard.files.whole import refusing_write_errors, write_file

if TYPE_CHECKING:
    from regard.parsing import Parse, Parser
    from regard.trees.tree import Tree

_ModelArgument = Annotated[Path, typer.Argument(help="A model or run directory of a parser.")]
_TokenisedOption = Annotated[
    bool, typer.Option("--tokenised", help="The words are separated by blanks already.")
]
_PrettyOption = Annotated[
    bool, typer.Option("--pretty", help="Each tree over several lines, indented by level.")
]
_DrawOption = Annotated[bool, typer.Option("--draw", help="Draw the trees.")]
_SvgOption = Annotated[
    Path | None,
    typer.Option(
        "--svg", metavar="FOLDER", help="Draw the tree of line N into FOLDER/N.svg as well."
    ),
]
_SilverOption = Annotated[
    float | None,
    typer.Option(
        "--write-silver",
        metavar="THRESHOLD",
        help="Only trees with at least this log p per word; each line is log p, a tab, the tree.",
    ),
]
_WindowOption = Annotated[int | None, window_option("on a GPU")]


def parse(
    model: _ModelArgument,
    input: InputOption = Path("-"),  # noqa: A002
    tokenised: _TokenisedOption = False,
    pretty: _PrettyOption = False,
    draw: _DrawOption = False,
    svg: _SvgOption = None,
    as_json: JsonOption = False,
    write_silver: _SilverOption = None,
    beam: BeamOption = None,
    window: _WindowOption = None,
    precision: PrecisionOption = "fp32",
    threads: ThreadsOption = 0,
) -> None:
    """Parse lines of English, one sentence a line, into one bracketed tree a line.

    Raw text is cut into words as the Penn treebank does (extra: parse). --write-silver makes trees
    for regard train --silver. An empty line of text gives an empty line of output. But with --json,
    an empty line gives a null tree, and with --write-silver, it gives nothing.

    Examples:

    - `echo "The dog doesn't bark." | regard parse runs/p --draw`
    - `regard parse runs/p --pretty --svg drawings < text.txt`
    - `regard parse runs/p --tokenised < words.txt > test.trees`
    - `regard parse runs/p --write-silver=-0.1 < news.txt > silver.trees`
    """
    from regard.files.lines import read_lines
    from regard.parsing import by_blanks, treebank_words

    form = _Form(pretty, draw, as_json, write_silver)
    form.refuse_unfit()
    if svg is not None and svg.exists() and not svg.is_dir():
        raise RecipeError(f"--svg {svg}: is a file: name a folder")
    split = by_blanks if tokenised else treebank_words()
    parser = _opened(model, precision, beam, threads)
    if window is None and str(input) == "-" and sys.stdin.isatty():
        window = 1  # a person types sentences and waits for each answer
    sentences = map(split, read_lines(input))
    for number, best in enumerate(parser.stream(sentences, window=window), start=1):
        for line in form.lines(best):
            typer.echo(line, color=True)  # with color=True, typer keeps escape sequences in words
        if svg is not None and best:
            _write_svg(svg / f"{number}.svg", best[0].tree)


@dataclass(frozen=True)
class _Form:
    """The output format: one tree on each line, unless an option asks for another format."""

    pretty: bool
    draw: bool
    as_json: bool
    silver_threshold: float | None
    """The least log p per word with which a tree is written; None without --write-silver."""

    def refuse_unfit(self) -> None:
        """Raise RecipeError for several output formats, or for an unusable threshold.

        A threshold is unusable if it is positive, infinite or NaN. No tree could reach a positive
        threshold, because a log p is at most 0.
        """
        threshold = self.silver_threshold
        if self.pretty + self.draw + self.as_json + (threshold is not None) > 1:
            raise RecipeError("--pretty, --draw, --json and --write-silver exclude one another")
        if threshold is not None and not (math.isfinite(threshold) and threshold <= 0):
            raise RecipeError(f"--write-silver {threshold}: give a log p per word, such as -0.1")

    def lines(self, best: "Sequence[Parse]") -> list[str]:
        """The texts to write for a sentence; a drawn or indented tree is a text of several lines.

        `best` has the sentence's trees, the best first; it is empty for an empty line of input.
        """
        if self.silver_threshold is not None:
            return _silver(best, self.silver_threshold)
        if self.as_json:
            return [_json(best)]
        return [self._shown(best[0].tree) if best else ""]

    def _shown(self, tree: "Tree") -> str:
        from regard.parsing import in_treebank, treebank_line
        from regard.trees import penn
        from regard.trees.draw import drawn

        if self.draw:
            columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            return drawn(tree, columns)
        return penn.pretty(in_treebank(tree)) if self.pretty else treebank_line(tree)


def _opened(model: Path, precision: str, beam: int | None, threads: int) -> "Parser":
    from regard.machine.devices import keep_freed_memory, set_threads
    from regard.parsing import load

    set_threads(threads)
    keep_freed_memory()
    parser = load(model, precision=precision)
    if beam is not None:
        parser.recipe = parser.recipe.but(beam=beam)
    return parser


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
        return json_for_terminal({"tree": None})
    one = best[0]
    found = {"tree": treebank_line(one.tree), "score": one.score, "confidence": one.confidence}
    return json_for_terminal(found)


def _write_svg(path: Path, tree: "Tree") -> None:
    """Draw a tree into an SVG file; the folder of the file is made if it does not exist."""
    from regard.trees.svg import svg

    with refusing_write_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, svg(tree) + "\n")
