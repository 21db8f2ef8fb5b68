"""`regard claims`: small experiments, one for each claim in the text of the paper."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import note_finished
from regard.cli.options import QuietOption
from regard.errors import RecipeError

if TYPE_CHECKING:
    from regard.claims.tables import Outcome

_NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Claims to try; all of them without a name."),
]
_OutOption = Annotated[
    Path, typer.Option("--out", help="Where finished parts are kept; a stopped command continues.")
]
_SeedsOption = Annotated[
    int,
    typer.Option("--seeds", min=1, max=10, help="How often each calculation and training is done."),
]
_StepsOption = Annotated[
    int | None, typer.Option("--steps", min=1, help="Optimizer steps of each training.")
]
_PairsOption = Annotated[
    int | None,
    typer.Option("--pairs", min=1000, max=10**7, help="Sentence pairs to learn from."),
]
_JobsOption = Annotated[
    int, typer.Option("--jobs", min=0, help="Processes, of one core each; 0 is one for each core.")
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]
_ListOption = Annotated[bool, typer.Option("--list", help="List the claims; try none.")]


def claims(
    names: _NamesArgument = None,
    out: _OutOption = Path("runs/claims"),
    seeds: _SeedsOption = 3,
    steps: _StepsOption = None,
    pairs: _PairsOption = None,
    jobs: _JobsOption = 0,
    as_json: _JsonOption = False,
    as_markdown: _MarkdownOption = False,
    list_only: _ListOption = False,
    quiet: QuietOption = False,
) -> None:
    """Test the claims in the paper's text: show each claim, the measurements, and a verdict.

    Some claims are calculated in seconds. The others train small models on the built-in corpus, for
    about a minute each, and download nothing. All claims take less than an hour on two cores.

    A verdict is about models of this size only. The claim holds, does not hold here, or cannot be
    decided. A comparison cannot be decided by one seed, or if the mean difference is too small
    compared with its spread between seeds (one-sided 95 % bounds, Student's t).

    Finished calculations and trainings are kept in --out: the same command continues after Ctrl-C
    or a kill, and a larger --seeds trains only with the additional seeds.

    Examples:

    - `regard claims positions convolutions head-costs`   (seconds)
    - `regard claims mask --seeds 1`
    - `regard claims --markdown > claims.md`
    - `regard claims --list`
    """
    from regard.claims.parts import Size
    from regard.claims.registry import claims_named
    from regard.claims.tables import markdown, result_json
    from regard.claims.trying import try_claims
    from regard.machine.cores import usable_cores

    _refuse_forms(as_json, as_markdown, list_only)
    chosen = claims_named(names or [])
    if list_only:
        for claim in chosen:
            typer.echo(f"{claim.name:<18} §{claim.section:<6} {claim.quote}")
        return
    given = {"steps": steps, "pairs": pairs}
    size = Size(**{field: value for field, value in given.items() if value is not None})
    outcomes = try_claims(
        chosen,
        out,
        range(1, seeds + 1),
        size=size,
        jobs=jobs or usable_cores(),
        heard=(lambda _: None) if quiet else note_finished,
    )
    if as_json:
        typer.echo(json.dumps(result_json(outcomes, range(1, seeds + 1), size)))
    elif as_markdown:
        typer.echo(markdown(outcomes), nl=False)
    else:
        _show_table(outcomes)


def _refuse_forms(as_json: bool, as_markdown: bool, list_only: bool) -> None:
    """Raise RecipeError if two forms of the output are asked for."""
    if as_json and as_markdown:
        raise RecipeError("--json and --markdown are two forms of the same table: choose one")
    if list_only and (as_json or as_markdown):
        raise RecipeError("--list writes plain text: leave out --json and --markdown")


def _show_table(outcomes: "list[Outcome]") -> None:
    """Print a table for each claim: statements, measurements, and verdicts."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    for one in outcomes:
        title = f'{one.claim.name}: {one.verdict}\n§{one.claim.section}: "{one.claim.quote}"'
        table = Table(title=title, title_justify="left", title_style="bold", expand=True)
        table.add_column("statement", overflow="fold", ratio=5)
        table.add_column("what came out", overflow="fold", ratio=5)
        table.add_column("verdict", overflow="fold", ratio=2)
        for finding in one.findings:
            table.add_row(finding.statement, str(finding), str(finding.verdict))
        console.print(table)
