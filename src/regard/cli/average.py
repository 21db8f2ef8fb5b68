"""`regard average`: writes the mean of some checkpoints of a run as a model directory."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import note
from regard.errors import RegardError


def average(
    run: Annotated[Path, typer.Argument(help="A run directory, finished or not.")],
    out: Annotated[Path, typer.Option(help="The model directory to make.")],
    last: Annotated[
        int | None,
        typer.Option(min=1, help="How many checkpoints are averaged; by default 5."),
    ] = None,
    best: Annotated[
        bool,
        typer.Option("--best", help="Not the newest, but those nearest to the best validation."),
    ] = False,
    steps: Annotated[
        str | None, typer.Option(metavar="STEPS", help="The checkpoints of these steps: 1000,2000.")
    ] = None,
) -> None:
    """Average checkpoints of a run into a model (§6.1: the last 5 for base, the last 20 for big).

    Examples:

    - `regard average runs/x --last 3 --out models/x3`
    - `regard average runs/x --best --last 8 --out models/best`
    """
    from regard.run.averaging import average_run

    named = [] if steps is None else steps.split(",")
    are_steps = all(step.isdecimal() and len(step) < 19 for step in named)
    if not are_steps or (named and (best or last)):
        raise RegardError(
            f"--steps {steps:.99}: give numbers, such as 1000,2000, and neither --best nor --last"
        )
    averaged = average_run(run, out, last or 5, warn=note, best=best, steps=[*map(int, named)])
    typer.echo(f"{out}: the mean of steps {', '.join(map(str, averaged))}")
