"""`regard prepare`: turns files of text or trees into data that `regard train` reads."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import note
from regard.cli.options import (
    MixOption,
    QuietOption,
    RecipeOption,
    SetOption,
    TextOptions,
    TokenizerOption,
    TreeOptions,
    training_files,
    with_groups,
)

if TYPE_CHECKING:
    from regard.data.encoding import SplitCounts
    from regard.data.prepare import Report

_OutOption = Annotated[
    Path, typer.Option("--out", help="Directory to make; earlier prepared data is replaced.")
]
_WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes at most; by default one for each core."),
]


@with_groups
def prepare(
    *,
    out: _OutOption,
    text: TextOptions,
    mix: MixOption = None,
    trees: TreeOptions,
    tokenizer: TokenizerOption = None,
    recipe: RecipeOption = None,
    assign: SetOption = None,
    workers: _WorkersOption = None,
    quiet: QuietOption = False,
) -> None:
    """Clean text or trees, learn sub-words, and write the sentences as ids, in limited memory.

    Files of text are UTF-8 with one sentence on each line. Files of trees are in Penn bracketing.
    All files may be plain, .gz, .xz or .zst. Without validation files, some pairs or trees are held
    out. Without --recipe, trees get the recipe small-parse. Text gets the recipe small, with a size
    of the vocabulary and a data.row_length that suit the text.

    Examples:

    - `regard prepare --source train.en.xz --target train.de.xz --out prepared`
    - `regard prepare --source a.en --source b.en --target a.fr --target b.fr --out prepared
      --set tokenizer.kind=wordpiece --set tokenizer.vocabulary=32000 --set data.deduplicate=true`
    - `regard prepare --trees train.mrg --silver parsed.trees.xz --recipe wsj-semi --out prepared`
    """
    from regard.cli.preparing import preparing
    from regard.inputs import prepare_files

    files = training_files(text, trees, mix)
    with preparing(quiet, files.content) as progress:
        report = prepare_files(
            files, out, recipe=recipe, assignments=assign or (), tokenizer=tokenizer,
            workers=workers, progress=progress,
            remark=(lambda _: None) if quiet else note,
        )  # fmt: skip
    # The printed command has --time if the data is text and the user has named no recipe: with
    # --time, `regard train` chooses a recipe for prepared text.
    time = " --time 1h" if recipe is None and not files.trees else ""
    typer.echo(_summary(report, out, files.content) + time)


def _summary(report: "Report", out: Path, what: str) -> str:
    train = report.train
    return "\n".join(
        [
            f"train       {_counts(train, what)}",
            f"valid       {_counts(report.valid, what)}",
            f"tokens      {train.source_tokens:,} source, {train.target_tokens:,} target",
            f"vocabulary  {report.vocabulary:,} entries, fingerprint {report.fingerprint[:12]}",
            f"{out}: done; train with: regard train --data {quote(str(out))} --out runs/x",
        ]
    )


def _counts(counts: "SplitCounts", what: str) -> str:
    drawn = f"{counts.not_drawn:,} not drawn, " * (counts.not_drawn > 0)
    dropped = drawn + (
        f"{counts.empty:,} empty, {counts.too_long:,} too long, {counts.ratio:,} by ratio, "
        f"{counts.duplicates:,} duplicates, {counts.held_out:,} held out"
    )
    return f"{counts.kept:,} {what} of {counts.read:,} ({dropped})"
