"""`regard train`: from two text files, or prepared data, to a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.start import Start, TextFiles
from regard.cli.treebank import TreeFiles

if TYPE_CHECKING:
    from regard.machine.processes import Processes
    from regard.recipe import Recipe


def train(
    out: Annotated[Path, typer.Option(help="The run directory; an existing run goes on.")],
    source: Annotated[
        list[Path] | None, typer.Option(help="Source text; may be given again.")
    ] = None,
    target: Annotated[list[Path] | None, typer.Option(help="Target text, line by line.")] = None,
    valid_source: Annotated[list[Path] | None, typer.Option(help="Validation source.")] = None,
    valid_target: Annotated[list[Path] | None, typer.Option(help="Validation target.")] = None,
    task: Annotated[
        str | None, typer.Option(help="translate, or parse: learn from trees (see --trees).")
    ] = None,
    trees: Annotated[
        list[Path] | None, typer.Option(help="Trees to learn to parse; may be given again.")
    ] = None,
    valid_trees: Annotated[list[Path] | None, typer.Option(help="Validation trees.")] = None,
    silver: Annotated[
        list[Path] | None, typer.Option(help="Trees made by a parser, to learn from besides.")
    ] = None,
    silver_share: Annotated[
        float | None, typer.Option(help="Share of silver trees; the rarer kind is repeated.")
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option("--from", metavar="MODEL", help="Begin with the weights of this model."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Data made by regard prepare, instead of files.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Use this tokenizer.json; do not learn one.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe file, or the name of one.")] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a field of the recipe."),
    ] = None,
    accept_changes: Annotated[
        bool, typer.Option(help="Resume although the recipe, or what --data holds, changed.")
    ] = False,
    board: Annotated[bool, typer.Option(help="Write TensorBoard events (extra: board).")] = False,
    micro_batches: Annotated[
        int | None,
        typer.Option(min=1, help="Parts to learn from each batch in: less memory, same update."),
    ] = None,
    shard: Annotated[
        bool, typer.Option("--shard", help="Divide weights and moments among torchrun's processes.")
    ] = False,
    verify_resume: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Only replay K steps, to prove resuming exact."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Tell memory, time and disk, by a trial; no training.")
    ] = False,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Exact resume on a GPU too; slower there.")
    ] = False,
    threads: Annotated[int, typer.Option(min=0, help="Processor cores; 0 is all.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Train a model to translate or to parse. Stop it as you like: the same command goes on from
    the last checkpoint.

    Without validation files some pairs are held out. Without --recipe one is chosen by the size of
    the corpus. The names are base, big, wsj and so on, as in the paper, small and small-parse.

    Examples:

    `regard train --source train.en --target train.de --out runs/x`

    `regard train --data prepared --recipe base --set training.steps=20000 --out runs/base`

    `regard train --task parse --trees train.mrg --valid-trees dev.mrg --out runs/parser`

    `regard train --data prepared --recipe base --out runs/base --plan`   (what will it take?)

    `regard train --out runs/x`   (go on)

    `regard train --from runs/x --source law.en --target law.de --out runs/law
    --set training.steps=2000 --set training.warmup_steps=500`   (for a field of its own)

    `torchrun --nproc-per-node 8 -m regard train --data prepared --recipe big --out runs/big`
    """
    from regard.cli.console import note
    from regard.cli.plan import print_plan
    from regard.data.layouts import refuse_more_parts
    from regard.errors import RegardError
    from regard.machine.devices import be_deterministic, set_threads
    from regard.machine.processes import together
    from regard.measure.resumption import verify_resume as verified

    set_threads(threads)
    if deterministic:
        be_deterministic()
    texts = TextFiles(source or [], target or [], valid_source or [], valid_target or [])
    files = TreeFiles(trees or [], valid_trees or [], silver or [], silver_share)
    begin = Start(out, task, texts, files, data, tokenizer, recipe, assign or [], quiet, start_from)

    with together() as processes:
        if verify_resume is not None and processes.count > 1:
            raise RegardError("--verify-resume replays in one process: start it without torchrun")
        chosen, prepared = processes.first_does(begin)
        if verify_resume is not None:
            found = verified(out, chosen, prepared, verify_resume, note)
            typer.echo(f"{out}: {found}")
            return
        refuse_more_parts(micro_batches or 1, chosen.data)
        if plan:
            print_plan(chosen, out, prepared, processes, micro_batches, shard, quiet)
            return
        run_training(
            chosen,
            out,
            prepared,
            accept_changes=accept_changes,
            board=board,
            quiet=quiet,
            processes=processes,
            micro_batches=micro_batches,
            shard=shard,
        )
        if processes.first:
            verb = "parse" if chosen.task.output == "trees" else "translate"
            typer.echo(f"{out}: done; {verb} with: regard {verb} {out} < in.txt")


def run_training(
    recipe: "Recipe",
    out: Path,
    data: Path,
    *,
    accept_changes: bool = False,
    board: bool = False,
    quiet: bool = False,
    processes: "Processes | None" = None,
    micro_batches: int | None = None,
    shard: bool = False,
) -> None:
    """Train on prepared data with progress, obeying signals; leaves a model in `out`.

    Of several processes the first tells what happens.
    """
    from contextlib import nullcontext

    from regard.cli.console import note
    from regard.cli.plan import announce
    from regard.cli.progress import TrainingDisplay
    from regard.machine.interrupt import Interrupted, interruptible
    from regard.machine.processes import ALONE
    from regard.measure.validation import validator
    from regard.run.directory import Run
    from regard.run.finetuning import begin_from_model
    from regard.run.journal import tensorboard
    from regard.training import train

    processes = processes or ALONE
    listeners = (tensorboard(out / "board"),) if board and processes.first else ()
    display = TrainingDisplay() if processes.first and not quiet else None
    warn = note if processes.first else (lambda message: None)
    with interruptible(patient=processes.count > 1) as interrupt, display or nullcontext():
        if display:
            listeners = (display, *listeners)
        validate = validator(data, recipe, processes)
        run = Run(
            out,
            recipe,
            data,
            listeners=listeners,
            interrupt=interrupt,
            warn=warn,
            accept_changes=accept_changes,
            processes=processes,
            micro_batches=micro_batches,
            shard=shard,
        )
        if processes.first:
            begin_from_model(run)
            announce(run, quiet)
        try:
            train(run, validate)
        except Interrupted as stopped:
            warn(f"{out}: {stopped}")
            raise SystemExit(stopped.status) from None
