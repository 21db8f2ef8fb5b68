"""Options and arguments that several commands share, declared here once."""

import inspect
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from regard.errors import RecipeError

if TYPE_CHECKING:
    from regard.inputs import TrainingFiles

Files = list[Path] | None


def _recipes(incomplete: str) -> list[str]:
    """The names of recipes that begin with `incomplete`; a shell offers them as completions."""
    from regard.presets import RECIPES

    return [name for name in RECIPES if name.startswith(incomplete)]


class TextOptions(NamedTuple):
    """Options that name files of text in two languages."""

    source: Annotated[Files, typer.Option(help="Source text; may be given again.")] = None
    target: Annotated[
        Files, typer.Option(help="Translation of the source, line by line, in as many files.")
    ] = None
    valid_source: Annotated[Files, typer.Option(help="Validation source.")] = None
    valid_target: Annotated[Files, typer.Option(help="Validation target.")] = None


MixOption = Annotated[
    str | None,
    typer.Option("--mix", metavar="N,N", help="How often an epoch has the pairs of each --source."),
]


class TreeOptions(NamedTuple):
    """Options that name files of syntax trees."""

    trees: Annotated[
        Files, typer.Option(help="Trees to learn from, instead of text; may be given again.")
    ] = None
    valid_trees: Annotated[Files, typer.Option(help="Validation trees.")] = None
    silver: Annotated[
        Files, typer.Option(help="Trees written by a parser, to learn from in addition.")
    ] = None
    silver_share: Annotated[
        float | None, typer.Option(help="Share of silver trees; the rarer kind is repeated.")
    ] = None


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
    int | None, typer.Option("--beam", min=1, help="Live hypotheses of the search; 1 is greedy.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON lines, with scores.")]


def window_option(on_a_gpu: str) -> Any:
    """The option --window; `on_a_gpu`, such as "on a GPU", says when 16384 lines is the default."""
    return typer.Option(
        "--window",
        min=1,
        max=10**6,
        help="Lines to read, sort by length and decode together.",
        show_default=f"2048; {on_a_gpu}, 16384; 1 for typed lines",
    )


PrecisionOption = Annotated[
    str, typer.Option("--precision", help="fp32, bf16, int8, auto or fastest.")
]

EngineOption = Annotated[
    str | None,
    typer.Option("--engine", help="ctranslate2 or onnx: what computes an exported directory."),
]
ThreadsOption = Annotated[
    int, typer.Option("--threads", min=0, help="Processor cores to use; 0 is all.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")]


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter whose type is a named tuple by one option for each field of the tuple.

    The options take the place of the parameter. The returned function collects their values into
    the named tuple, and calls the command with the tuple.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command).parameters.values():
        group = parameter.annotation
        if hasattr(group, "_fields"):
            groups[parameter.name] = group
            parameters += inspect.signature(group).parameters.values()
        else:
            parameters.append(parameter)

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(*map(values.pop, group._fields))
        command(**values)

    by_name = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters]
    vars(run)["__signature__"] = inspect.Signature(by_name)
    return run


def refuse_engine(
    models: Sequence[Path], precision: str, exact: bool | None, allowed: Sequence[str]
) -> None:
    """Raise RecipeError for several models or for options that --engine excludes.

    The precision of an exported model was chosen by `regard export`, so --precision must have one
    of the values in `allowed`. --exact must not be given.
    """
    given = {
        "several models": len(models) > 1,
        f"--precision {precision}": precision not in allowed,
        "--exact": bool(exact),
    }
    for option, found in given.items():
        if found:
            raise RecipeError(f"--engine does not go with {option}: leave out one of the two")


def training_files(text: TextOptions, trees: TreeOptions, mix: str | None) -> "TrainingFiles":
    """The files to learn from; raises RecipeError if --mix is not a list of integers."""
    from regard.inputs import TrainingFiles

    return TrainingFiles(
        text.source or (), text.target or (), text.valid_source or (), text.valid_target or (),
        trees.trees or (), trees.valid_trees or (), trees.silver or (), trees.silver_share,
        _numbers(mix),
    )  # fmt: skip


def _numbers(text: str | None) -> tuple[int, ...]:
    """The integers in the value of --mix; () for None.

    Raises RecipeError unless `text` is integers of at most six digits, separated by commas.
    """
    if text is None:
        return ()
    if not re.fullmatch(r"[0-9]{1,6}(,[0-9]{1,6})*", text):
        raise RecipeError(f"--mix {text}: give whole numbers with commas between them: 3,1")
    return tuple(map(int, text.split(",")))
