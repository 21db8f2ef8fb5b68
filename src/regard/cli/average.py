"""`regard average`: the mean of a run's last checkpoints, as a model directory."""

from pathlib import Path
from typing import Annotated

import typer


def average(
    run: Annotated[Path, typer.Argument(help="A run directory, finished or not.")],
    out: Annotated[Path, typer.Option(help="The model directory to make.")],
    last: Annotated[int, typer.Option(min=1, help="How many of the newest checkpoints.")] = 5,
) -> None:
    """Average the last checkpoints of a run into a model (§6.1: 5 for base, 20 for big).

    Example: `regard average runs/x --last 3 --out models/x3`
    """
    from regard.cli.console import note
    from regard.run.averaging import average_run

    steps = average_run(run, out, last, warn=note)
    typer.echo(f"{out}: the mean of steps {', '.join(map(str, steps))}")
