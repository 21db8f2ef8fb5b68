"""`regard demo`: trains a translator or a parser on the built-in corpus; it needs no data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import QuietOption, ThreadsOption
from regard.errors import RecipeError
from regard.files.whole import write_file

if TYPE_CHECKING:
    from rich.console import Console

    from regard.cli.demo_corpus import Shown
    from regard.inputs import TrainingFiles
    from regard.recipe import Recipe

_OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="The run directory, by default runs/demo or runs/demo-parse; an unfinished demo in "
        "it continues.",
    ),
]
_TaskOption = Annotated[str, typer.Option("--task", help="translate, or parse.")]
_PairsOption = Annotated[
    int,
    typer.Option("--pairs", min=1000, max=10**7, help="Sentence pairs, or trees, to learn from."),
]
_StepsOption = Annotated[
    int | None,
    typer.Option("--steps", min=1, help="Optimizer steps, instead of the recipe's."),
]


def demo(
    out: _OutOption = None,
    task: _TaskOption = "translate",
    pairs: _PairsOption = 20_000,
    steps: _StepsOption = None,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Make a corpus, train a small Transformer on it, and show what it learned.

    The English and German sentences are made by a grammar; nothing is downloaded. The grammar has
    case, gender, separable verbs, and pronouns whose gender depends on a noun in the same clause or
    the clause before. With --task parse, the tree of each English sentence is learned.

    Example: `regard demo --out runs/demo`
    """
    from rich.console import Console

    from regard.cli.demo_corpus import write_text, write_trees
    from regard.cli.demo_parse import parse_recipe, show_trees
    from regard.cli.demo_translate import demo_recipe, show_translations
    from regard.machine.devices import set_threads

    set_threads(threads)
    stdout = Console(highlight=False)
    if task == "parse":
        out = out or Path("runs/demo-parse")
        _learn(out, parse_recipe(), steps, write_trees, pairs, quiet)
        _conclude(out, stdout, show_trees(out, stdout))
    elif task == "translate":
        out = out or Path("runs/demo")
        _learn(out, demo_recipe(), steps, write_text, pairs, quiet)
        _conclude(out, stdout, show_translations(out, stdout))
    else:
        raise RecipeError(f"--task {task}: it is translate or parse")


def _learn(
    out: Path,
    recipe: "Recipe",
    steps: int | None,
    write: "Callable[[Path, int], TrainingFiles]",
    pairs: int,
    quiet: bool,
) -> None:
    """Train in the run directory `out`; if the demo is new, write and prepare its corpus first.

    `write` is called with a folder and `pairs`, writes the corpus there, and returns the files.
    If `steps` is not None, this number replaces the number of steps in the recipe.
    """
    from regard.cli.demo_corpus import was_begun
    from regard.cli.preparing import preparing
    from regard.cli.train import train_and_show

    if steps is not None:
        recipe = recipe.but(steps=steps)
    if not was_begun(out, recipe, pairs):
        files = write(out / "corpus", pairs)
        with preparing(quiet, files.content) as progress:
            files.prepare(out / "data", recipe, progress=progress)
    train_and_show(recipe, out / "data", out, quiet=quiet)


def _conclude(out: Path, stdout: "Console", shown: "Shown") -> None:
    """Write the results to out/result.json, and print them and the commands to try next."""
    from rich.table import Table

    from regard.cli.demo_corpus import TEST_SENTENCES
    from regard.run.journal import read_journal

    finish = read_journal(out / "journal.jsonl")[-1]
    seconds = finish["seconds"]
    run = {"train_seconds": seconds, "cost": finish.get("cost"), "sentences": TEST_SENTENCES}
    write_file(out / "result.json", json.dumps(shown.measured | run, indent=1) + "\n")
    table = Table(title=f"On {TEST_SENTENCES:,} sentences the model has never seen")
    table.add_column("measure")
    table.add_column("result", justify="right")
    for row in (*shown.figures.items(), ("training time", f"{seconds:.0f} s")):
        table.add_row(*row)
    stdout.print(table)
    stdout.print("\n  ".join(["Try next:", *shown.commands]), markup=False, soft_wrap=True)
