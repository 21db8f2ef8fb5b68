"""`regard train`: trains a model on text, trees or prepared data."""

import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from regard.cli.console import note
from regard.cli.options import (
    MixOption,
    QuietOption,
    RecipeOption,
    SetOption,
    TextOptions,
    ThreadsOption,
    TokenizerOption,
    TreeOptions,
    training_files,
    with_groups,
)
from regard.errors import RegardError
from regard.machine.cores import started_together

if TYPE_CHECKING:
    from regard.machine.processes import Processes
    from regard.recipe import Recipe
    from regard.start import Start

_OutOption = Annotated[
    Path, typer.Option("--out", help="The run directory; an earlier run in it continues.")
]
_TaskOption = Annotated[
    str | None, typer.Option("--task", help="translate, or parse: learn from trees (see --trees).")
]
_FromOption = Annotated[
    Path | None,
    typer.Option("--from", metavar="MODEL", help="Begin with the weights of this model."),
]
_DataOption = Annotated[
    Path | None, typer.Option("--data", help="Data made by regard prepare, instead of files.")
]
_TimeOption = Annotated[
    str | None,
    typer.Option("--time", metavar="TIME", help="Time of the whole run: 30m, 8h, 2d, 1h30m."),
]
_SeedsOption = Annotated[
    int | None,
    typer.Option("--seeds", min=1, metavar="N", help="Train N models, in OUT/seed-1 and so on."),
]
_DiversifyOption = Annotated[
    bool,
    typer.Option("--diversify", help="Learn from two other models' translations of the text, too."),
]
_VerifyOption = Annotated[
    int | None,
    typer.Option(
        "--verify-resume",
        min=1,
        metavar="K",
        help="Only replay K steps, to test that resuming is exact.",
    ),
]
_PlanOption = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Do not train: report the memory, time and disk that a run needs, measured on a short "
        "trial or, with --time and new text, what to expect of several times.",
    ),
]
_DeterministicOption = Annotated[
    bool, typer.Option("--deterministic", help="Resume exactly on a GPU, too, which is slower.")
]


BEAM = 4
"""The widest beam with which --diversify translates the training text."""


class RunOptions(NamedTuple):
    """Options that say how a run is trained, but not on which data."""

    accept_changes: Annotated[
        bool,
        typer.Option(help="Continue although the recipe or the prepared data (--data) changed."),
    ] = False
    board: Annotated[bool, typer.Option(help="Write TensorBoard events (extra: board).")] = False
    micro_batches: Annotated[
        int | None,
        typer.Option(
            "--micro-batches",
            min=1,
            help="Learn from each batch in this many parts: less memory, same update.",
        ),
    ] = None
    shard: Annotated[
        bool, typer.Option("--shard", help="Divide weights and moments among torchrun's processes.")
    ] = False


_USUAL = RunOptions()


@with_groups
def train(
    *,
    out: _OutOption,
    text: TextOptions,
    task: _TaskOption = None,
    mix: MixOption = None,
    trees: TreeOptions,
    start_from: _FromOption = None,
    data: _DataOption = None,
    tokenizer: TokenizerOption = None,
    recipe: RecipeOption = None,
    assign: SetOption = None,
    duration: _TimeOption = None,
    seeds: _SeedsOption = None,
    diversify: _DiversifyOption = False,
    options: RunOptions,
    verify_resume: _VerifyOption = None,
    plan: _PlanOption = False,
    deterministic: _DeterministicOption = False,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Train a model to translate or to parse; the same command continues a run that was stopped.

    Without validation files, some pairs or trees are held out. Without --recipe, one is chosen to
    suit the text, this machine and --time (for new text, by default 1h). A longer --time continues
    a run. Recipes: small, small-parse, and those of the paper (base, big, wsj and others). --seeds
    divides the time among models. --diversify adds two other models' translations to a small text.

    Examples:

    - `regard train --source train.en --target train.de --out runs/x --time 30m`
    - `regard train --data prepared --recipe base --set training.steps=20000 --out runs/base`
    - `regard train --task parse --trees train.mrg --valid-trees dev.mrg --out runs/parser`
    - `regard train --source train.en --target train.de --out runs/x --time 8h --plan`   (compare)
    - `regard train --data prepared --recipe base --out runs/base --plan`   (what will it take?)
    - `regard train --out runs/x`   (continue)
    - `regard train --from runs/x --source law.en --target law.de --out runs/law`   (adapt a model)
    - `torchrun --nproc-per-node 8 -m regard train --data prepared --recipe big --out runs/big`
    """
    from regard.diversified import diversified, refuse_diversified
    from regard.members import alone, members
    from regard.start import Start, refuse_two_limits

    _set_up(threads, deterministic)
    files, minutes = training_files(text, trees, mix), _minutes(duration)
    start = Start(out, files, data, tokenizer, recipe, assign or (), task, start_from, minutes)
    refuse_two_limits(start)
    if diversify:
        _refuse_several(seeds, plan, verify_resume)
        starts = diversified(start, partial(_translate, threads=threads, quiet=quiet))
    else:
        refuse_diversified(out)
        starts = members(start, seeds) if seeds else alone(start)
    for each in starts:
        if verify_resume is not None:
            _verify(each, verify_resume, plan, options, quiet)
        elif _plan_or_train(each, plan, options, quiet):
            break  # the plan of the first run is enough


def _minutes(duration: str | None) -> float | None:
    from regard.amounts import seconds_in

    return None if duration is None else seconds_in(duration) / 60


def _refuse_several(seeds: int | None, plan: bool, verify_resume: int | None) -> None:
    """Raise RegardError for several processes, and for options that --diversify excludes."""
    if seeds or plan or verify_resume is not None:
        raise RegardError(
            "--diversify trains three different models: leave out --seeds, --plan and "
            "--verify-resume"
        )
    if started_together() > 1:
        raise RegardError("--diversify works in one process: start it without torchrun")


def _translate(model: Path, source: Path, out: Path, *, threads: int, quiet: bool) -> None:
    """Translate a file by `regard translate --out`; the beam is at most BEAM, for speed."""
    from regard.cli.translate import translate
    from regard.recipe import Recipe

    beam = min(Recipe.read(model / "recipe.toml").search.beam, BEAM)
    translate([model], source, out, beam, precision="auto", threads=threads, quiet=quiet)


def _set_up(threads: int, deterministic: bool) -> None:
    from regard.machine.devices import be_deterministic, set_threads

    set_threads(threads)
    if deterministic:
        be_deterministic()


def _verify(start: "Start", steps: int, plan: bool, options: RunOptions, quiet: bool) -> None:
    """Replay `steps` steps of a run, to test that resuming is exact, and print the result.

    A replay repeats the run as it was trained, in one process. Raises RegardError if `plan` is
    True, if one of `options` is given, if there are several processes, or if the run has no
    checkpoint. Also raises the errors of `begin` and of `verify_resume`, for example if numbers
    differ.
    """
    from regard.machine.processes import together
    from regard.measure.resumption import refuse_without_checkpoint, verify_resume

    if plan or options != _USUAL:
        raise RegardError(
            "--verify-resume replays a run as it was trained: leave out --plan, --accept-changes, "
            "--board, --micro-batches and --shard"
        )
    refuse_without_checkpoint(start.out)  # before data is prepared
    with together() as processes:
        if processes.count > 1:
            raise RegardError("--verify-resume replays in one process: start it without torchrun")
        recipe, data = _begin(start, quiet, trains=False)
        typer.echo(f"{start.out}: {verify_resume(start.out, recipe, data, steps, note)}")


def _plan_or_train(start: "Start", plan: bool, options: RunOptions, quiet: bool) -> bool:
    """Plan a run or train it; return True if it was planned."""
    from regard.cli.plan import print_budgets, print_plan
    from regard.machine.processes import together
    from regard.run.finetuning import origin_forgotten_after_errors

    out, began = start.out, time.monotonic()
    with together() as processes, origin_forgotten_after_errors(out):
        if plan and start.minutes and start.chooses_for_text:
            if processes.first:
                print_budgets(start, start.minutes, quiet=quiet)
            return True
        first = partial(_begin, start, quiet, trains=not plan)
        recipe, data = processes.first_does(first)
        if plan:
            print_plan(recipe, data, out, processes, options, quiet=quiet)
            return True
        train_and_show(recipe, data, out, options, processes, quiet=quiet, began=began)
        if processes.first:
            verb = "parse" if recipe.task.output == "trees" else "translate"
            typer.echo(f"{out}: done; {verb} with: regard {verb} {quote(str(out))} < in.txt")
    return False


def _begin(start: "Start", quiet: bool, *, trains: bool) -> "tuple[Recipe, Path]":
    from regard.cli.preparing import preparing
    from regard.start import begin

    with preparing(quiet, start.files.content) as progress:
        tell = (lambda _: None) if quiet else note
        return begin(
            start,
            progress=progress,
            remark=tell,
            chose=lambda choice: [tell(sentence) for sentence in choice.sentences()],
            trains=trains,
        )


def train_and_show(
    recipe: "Recipe",
    data: Path,
    out: Path,
    options: RunOptions = _USUAL,
    processes: "Processes | None" = None,
    *,
    quiet: bool = False,
    began: float | None = None,
) -> None:
    """Train on prepared data, and show progress on standard error; the model is written to `out`.

    If there are several processes, only the first shows progress. The time of the run is counted
    from `began`, a value of `time.monotonic`, or from now if `began` is None. If a signal stops the
    run, a checkpoint is saved, and SystemExit is raised with the exit status for the signal. In a
    run of one process, a second SIGTERM or Ctrl-C raises KeyboardInterrupt. Also raises the errors
    of `train_prepared`.
    """
    from regard.cli.plan import announce
    from regard.cli.progress import TrainingDisplay
    from regard.machine.interrupt import Interrupted, interruptible
    from regard.machine.processes import ALONE
    from regard.run.journal import tensorboard
    from regard.trainer import train_prepared

    processes = processes or ALONE
    listeners = (tensorboard(out / "board", note),) if options.board and processes.first else ()
    display = TrainingDisplay() if processes.first and not quiet else None
    with interruptible(patient=processes.count > 1) as interrupt, display or nullcontext():
        try:
            train_prepared(
                recipe,
                data,
                out,
                listeners=(display, *listeners) if display else listeners,
                warn=note,
                announce=lambda found: None if quiet else announce(recipe, found),
                interrupt=interrupt,
                accept_changes=options.accept_changes,
                processes=processes,
                micro_batches=options.micro_batches,
                shard=options.shard,
                began=began,
            )
        except Interrupted as stopped:
            if processes.first:
                note(f"{out}: {stopped}")
            raise SystemExit(stopped.status) from None
