"""Options and arguments that several commands share, each declared once."""

import re
from pathlib import Path
from typing import Annotated

import typer

Files = list[Path] | None


def _recipes(incomplete: str) -> list[str]:
    """The names of recipes that a shell can offer as completions of a word."""
    from regard.presets import RECIPES

    return [name for name in RECIPES if name.startswith(incomplete)]


SourceOption = Annotated[Files, typer.Option("--source", help="Source text; may be given again.")]
TargetOption = Annotated[
    Files,
    typer.Option("--target", help="Its translation, line by line, in as many files."),
]
MixOption = Annotated[
    str | None,
    typer.Option("--mix", metavar="N,N", help="Times that an epoch has the pairs of each source."),
]
ValidSourceOption = Annotated[Files, typer.Option("--valid-source", help="Validation source.")]
ValidTargetOption = Annotated[Files, typer.Option("--valid-target", help="Validation target.")]
TreesOption = Annotated[
    Files,
    typer.Option("--trees", help="Trees to learn to parse, instead of text; may be given again."),
]
ValidTreesOption = Annotated[Files, typer.Option("--valid-trees", help="Validation trees.")]
SilverOption = Annotated[
    Files,
    typer.Option("--silver", help="Trees written by a parser, to learn from in addition."),
]
SilverShareOption = Annotated[
    float | None,
    typer.Option("--silver-share", help="Share of silver trees; the rarer kind is repeated."),
]
TokenizerOption = Annotated[
    Path | None,
    typer.Option("--tokenizer", help="Use this tokenizer.json, or this model's; do not learn one."),
]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe", help="A recipe file, or the name of a recipe.", autocompletion=_recipes
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a field of the recipe."),
]

ModelArgument = Annotated[Path, typer.Argument(help="A model or run directory.")]
InputOption = Annotated[
    Path,
    typer.Option("--input", "-i", help="Text, one sentence a line; - is standard input."),
]
BeamOption = Annotated[
    int | None, typer.Option("--beam", min=1, help="Hypotheses kept alive; 1 is greedy search.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON lines, with scores.")]
WindowOption = Annotated[
    int,
    typer.Option(
        "--window", min=1, max=10**6, help="Lines to read, sort by length and decode together."
    ),
]
PrecisionOption = Annotated[str, typer.Option("--precision", help="fp32, bf16, int8 or auto.")]

EngineOption = Annotated[
    str | None,
    typer.Option("--engine", help="ctranslate2 or onnx: what computes an exported directory."),
]
ThreadsOption = Annotated[
    int, typer.Option("--threads", min=0, help="Processor cores to use; 0 is all.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")]


def numbers(text: str | None) -> tuple[int, ...]:
    """The integers of --mix, which commas separate; raises RecipeError for other text."""
    if text is None:
        return ()
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text):
        from regard.errors import RecipeError

        raise RecipeError(f"--mix {text}: give whole numbers with commas between them: 3,1")
    return tuple(map(int, text.split(",")))
