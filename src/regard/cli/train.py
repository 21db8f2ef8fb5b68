"""`regard train`: from two text files, or prepared data, to a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.recipe import Recipe


def train(
    out: Annotated[Path, typer.Option(help="The run directory; an existing run goes on.")],
    source: Annotated[
        list[Path] | None, typer.Option(help="Source text; may be given again.")
    ] = None,
    target: Annotated[list[Path] | None, typer.Option(help="Target text, line by line.")] = None,
    valid_source: Annotated[list[Path] | None, typer.Option(help="Validation source.")] = None,
    valid_target: Annotated[list[Path] | None, typer.Option(help="Validation target.")] = None,
    data: Annotated[Path | None, typer.Option(help="Data made by regard prepare, instead.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer.json, not a new one.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe file, or the name of one.")] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a field.")
    ] = None,
    accept_changes: Annotated[
        bool, typer.Option(help="Resume although recipe or data changed.")
    ] = False,
    board: Annotated[bool, typer.Option(help="Write TensorBoard events (extra: board).")] = False,
    threads: Annotated[int, typer.Option(min=0, help="Processor cores; 0 is all.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a model; stop it as you like, the same command goes on from the last checkpoint.

    Without validation files some pairs are held out. Without --recipe one is chosen by the size of
    the corpus. The names are base, big and so on, as in the paper, and small.

    Examples:

    `regard train --source train.en --target train.de --out runs/x`

    `regard train --data prepared --recipe base --set training.steps=20000 --out runs/base`

    `regard train --out runs/x`   (go on)
    """
    from regard.cli.prepare import prepare_for_training
    from regard.run.devices import set_threads
    from regard.run.directory import begun

    set_threads(threads)
    earlier = begun(out)
    prepared = out / "data"
    if data is not None and (source or target or valid_source or valid_target or tokenizer):
        raise RegardError(
            f"{data}: is prepared data, which has its text and tokenizer: give --data, or --source "
            "and --target, not both"
        )
    if data is None and prepared.is_dir() and (earlier or not (source and target)):
        _refuse_other_text(prepared, [*(source or []), *(target or [])])
        data = prepared
    if data is None and not (source and target):
        raise RegardError(f"{out}: nothing to train on yet: give --source and --target, or --data")
    chosen = _recipe(recipe, earlier, source, data, assign or [])
    if data is None:
        data = prepared
        prepare_for_training(
            source or [],
            target or [],
            data,
            chosen,
            valid_source or [],
            valid_target or [],
            tokenizer,
            quiet,
        )
    run_training(chosen, out, data, accept_changes=accept_changes, board=board, quiet=quiet)
    typer.echo(f"{out}: done; translate with: regard translate {out} < in.txt")


def _refuse_other_text(data: Path, paths: list[Path]) -> None:
    from regard.data.pairs import read_manifest
    from regard.text.files import checksum

    known = str(read_manifest(data).get("inputs"))
    for path in paths:
        if checksum(path) not in known:
            raise RegardError(
                f"{path}: is not the text that this run was begun with: choose another --out, or "
                "go on with that text by leaving --source and --target out"
            )


def _recipe(
    name: str | None,
    earlier: "Recipe | None",
    sources: list[Path] | None,
    data: Path | None,
    assignments: list[str],
) -> "Recipe":
    from regard.cli.prepare import recipe_for
    from regard.data.pairs import Pairs
    from regard.presets import recipe_named, suited_to

    if name is not None:
        found = recipe_named(name)
    elif earlier is not None:
        found = earlier
    elif data is not None:
        found = suited_to(len(Pairs.open(data, "train")))
    else:
        found = recipe_for(sources or [])
    return found.set(*assignments)


def run_training(
    recipe: "Recipe",
    out: Path,
    data: Path,
    *,
    accept_changes: bool = False,
    board: bool = False,
    quiet: bool = False,
) -> None:
    """Train on prepared data with progress, obeying signals; leaves a model in `out`."""
    from contextlib import nullcontext

    from regard.cli.console import note
    from regard.cli.progress import TrainingDisplay
    from regard.run.directory import Run
    from regard.run.interrupt import Interrupted, interruptible
    from regard.run.journal import tensorboard
    from regard.train import train
    from regard.validate import validator

    listeners = (tensorboard(out / "board"),) if board else ()
    display = None if quiet else TrainingDisplay()
    with interruptible() as interrupt, display or nullcontext():
        if display:
            listeners = (display, *listeners)
        validate = validator(data, recipe)
        run = Run(out, recipe, data, listeners, interrupt, note, accept_changes)
        try:
            train(recipe, run, validate)
        except Interrupted as stopped:
            note(f"{out}: {stopped}")
            raise typer.Exit(stopped.status) from None
