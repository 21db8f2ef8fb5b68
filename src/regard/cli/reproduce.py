"""`regard reproduce`: makes the paper's tables again; they show the paper's numbers, too."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import note, note_finished
from regard.cli.options import QuietOption
from regard.errors import RecipeError

if TYPE_CHECKING:
    from regard.parts.kept import Finished
    from regard.reproduce.tables import Experiment, Study

EVERY = 60.0
"""Seconds between two notes that tell which rows of the tables are being trained."""

_NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE...", help="Some of table1, table2, table3, table4 and figures, or all."
    ),
]
_ScaleOption = Annotated[str, typer.Option("--scale", help="mini, small, small-fr or paper.")]
_OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", help="The directory, by default runs/tables-SCALE; a stopped command continues."
    ),
]
_SeedsOption = Annotated[
    int | None, typer.Option("--seeds", min=1, max=10, help="How often each row is trained.")
]
_RowsOption = Annotated[
    str | None,
    typer.Option(
        "--rows", help="Train only these rows of table2 and table3, as base,A1; others stay."
    ),
]
_JobsOption = Annotated[
    int,
    typer.Option("--jobs", min=0, help="Processes; 0 is one for each core, or one on a GPU."),
]
_ReportOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--report",
        help="Also write what reproduces, as a page; in Korean if it ends in .ko.md. May be given "
        "again.",
    ),
]
_PlanOption = Annotated[
    bool, typer.Option("--plan", help="Tell the time, cost and disk of each row; train nothing.")
]
_PriceOption = Annotated[
    float | None,
    typer.Option("--price", min=0, help="Price of an hour of this machine, for --plan."),
]
_MinutesOption = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        min=1,
        max=1e5,
        help="Scale small: time of base's training on a core; a directory keeps its first.",
    ),
]


def reproduce(
    names: _NamesArgument,
    scale: _ScaleOption = "mini",
    out: _OutOption = None,
    seeds: _SeedsOption = None,
    rows: _RowsOption = None,
    jobs: _JobsOption = 0,
    report: _ReportOption = None,
    minutes: _MinutesOption = None,
    plan: _PlanOption = False,
    price: _PriceOption = None,
    quiet: QuietOption = False,
) -> None:
    """Make the paper's tables again: train each row, and show the paper's numbers beside ours.

    Scale mini learns from the built-in corpus, and downloads nothing. Scales small (to German) and
    small-fr (to French) learn from text under REGARD_DATA, scale paper from WMT 2014, on GPUs.
    `--plan` tells how long each row takes.

    Each row has a run directory and is trained once. The same command continues after Ctrl-C or a
    kill. With more --seeds, it trains only with the additional seeds. Several such commands with
    the same --out share the work. After each row, index.html and the files of the tables are
    written into --out: for table3, these are table3.md, table3.json and a drawing, table3.svg.

    Examples:

    - `regard reproduce table3 --scale mini --out runs/tables`
    - `regard reproduce all --scale mini --out runs/tables --seeds 3 --report results.md`
    - `regard reproduce table2 table3 --scale small --minutes 10 --out runs/small`
    - `regard reproduce table3 --scale mini --out runs/tables --seeds 3 --rows base,A1,C1`
    - `regard reproduce table3 --scale paper --plan --price 20`
    """
    from regard.reproduce.making import reproduce_tables
    from regard.reproduce.plan import plan_lines
    from regard.reproduce.registry import experiments_named, rows_named, scale_named
    from regard.reproduce.report import write_report
    from regard.reproduce.tables import Study, markdown_of

    _refuse_misplaced(plan, price, report)
    chosen, size = experiments_named(names), scale_named(scale, minutes)
    study = Study(
        size,
        Path(f"runs/tables-{scale}") if out is None else out,
        tuple(range(1, (seeds or size.seeds) + 1)),
        rows_named(() if rows is None else rows.split(","), chosen),
    )
    processes = _processes(jobs)
    if plan:
        typer.echo("\n".join(plan_lines(study, chosen, max(1, processes), price)))
        return
    with _progress(study, chosen, quiet) as heard:
        tables = reproduce_tables(study, chosen, jobs=processes, heard=heard)
    for table in tables:
        typer.echo(markdown_of(table))
    trained = max(len(table.values.get("seeds", study.seeds)) for table in tables)
    command = _command(names, scale, trained, rows, minutes)
    named = dict(zip((one.name for one in chosen), tables, strict=True))
    for path in report or []:
        write_report(path, size, command, named)
    note(f"{study.out / 'index.html'}: all tables; open it in a browser")


def _command(
    names: list[str], scale: str, seeds: int, rows: str | None, minutes: float | None
) -> str:
    """The command to show in the report for these tables, without --out and --jobs."""
    command = f"regard reproduce {' '.join(names)} --scale {scale} --seeds {seeds}"
    command += "" if rows is None else f" --rows {rows}"
    return command + ("" if minutes is None else f" --minutes {minutes:g}")


def _refuse_misplaced(plan: bool, price: float | None, report: list[Path] | None) -> None:
    """Raise RecipeError for --price without --plan, and for --report with --plan."""
    if price is not None and not plan:
        raise RecipeError(f"--price {price:g}: it is for --plan: leave it out, or add --plan")
    if report and plan:
        raise RecipeError(f"--report {report[0]}: --plan makes no table: leave out one of the two")


def _processes(jobs: int) -> int:
    """The number of worker processes to start: `jobs`, or what suits the machine if `jobs` is 0.

    One process suits a GPU, and one for each core suits a CPU. Returns 0 instead of 1, because this
    process can do the work of a single worker itself.
    """
    from regard.machine.cores import usable_cores
    from regard.machine.devices import choose_device, computes_beside

    count = jobs or (1 if computes_beside(choose_device()) else usable_cores())
    return 0 if count == 1 else count


@contextmanager
def _progress(
    study: "Study", experiments: "list[Experiment]", quiet: bool
) -> "Iterator[Callable[[Finished], object]]":
    """Show each minute which rows are being trained; yield a function that shows a finished row.

    If `quiet` is True, nothing is shown.
    """
    from regard.reproduce.making import rows_in_training

    if quiet:
        yield lambda _: None
        return
    ended = Event()

    def tell() -> None:
        while not ended.wait(EVERY):
            if rows := rows_in_training(study, experiments):
                note(f"            {'; '.join(rows)}")

    Thread(target=tell, daemon=True).start()
    try:
        yield note_finished
    finally:
        ended.set()
