"""`regard prepare`: from files of text or trees to data that `regard train` reads, of any size."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.treebank import TreeFiles, refuse_text
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.data.aligned import Progress
    from regard.data.encoding import SplitCounts
    from regard.data.prepare import Report
    from regard.recipe import Recipe

Files = list[Path]


def prepare(
    out: Annotated[
        Path, typer.Option(help="Directory to make; earlier prepared data is replaced.")
    ],
    source: Annotated[Files | None, typer.Option(help="Source text; may be given again.")] = None,
    target: Annotated[
        Files | None, typer.Option(help="Its translation, line by line; as many files.")
    ] = None,
    valid_source: Annotated[Files | None, typer.Option(help="Validation source.")] = None,
    valid_target: Annotated[Files | None, typer.Option(help="Validation target.")] = None,
    trees: Annotated[
        Files | None,
        typer.Option(help="Trees to learn to parse, instead of text; may be given again."),
    ] = None,
    valid_trees: Annotated[Files | None, typer.Option(help="Validation trees.")] = None,
    silver: Annotated[
        Files | None, typer.Option(help="Trees made by a parser, to learn from besides.")
    ] = None,
    silver_share: Annotated[
        float | None, typer.Option(help="Share of silver trees; the rarer kind is repeated.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Use this tokenizer.json; do not learn one.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe file, or the name of one.")] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a field of the recipe."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes at most; one per core if not given.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Clean text, learn its sub-words and write it as ids, in bounded memory; or trees.

    Files of text are UTF-8 with one sentence a line, files of trees are in Penn bracketing: plain,
    .gz, .xz or .zst. Without validation files some pairs are held out. Without --recipe one is
    chosen by the size of the corpus, as in regard train.

    Examples:

    `regard prepare --source train.en.xz --target train.de.xz --out prepared`

    `regard prepare --source a.en --source b.en --target a.fr --target b.fr --out prepared
    --set tokenizer.kind=wordpiece --set tokenizer.vocabulary=32000 --set data.deduplicate=true`

    `regard prepare --trees train.mrg --silver parsed.trees.xz --recipe wsj-semi --out prepared`
    """
    from regard.presets import SMALL_PARSE, recipe_named

    files = TreeFiles(trees or [], valid_trees or [], silver or [], silver_share)
    files.refuse_unfit(None, with_text=bool(source or target or valid_source or valid_target))
    named = None if recipe is None else recipe_named(recipe)
    if files.trees:
        if workers is not None:
            raise RegardError("--workers is for text: trees are read by one process")
        chosen = (named or SMALL_PARSE).but(output="trees").set(*(assign or []))
        report = files.prepare(out, chosen, tokenizer, quiet)
        typer.echo(_told(report, out, "trees"))
        return
    if not (source and target):
        raise RegardError(f"{out}: nothing to prepare: give --source and --target, or --trees")
    chosen = (named or recipe_for(source)).set(*(assign or []))
    refuse_text(chosen)
    report = prepare_for_training(
        source,
        target,
        out,
        chosen,
        valid_source or [],
        valid_target or [],
        tokenizer,
        quiet,
        workers,
    )
    typer.echo(_told(report, out))


def prepare_for_training(
    sources: Files,
    targets: Files,
    out: Path,
    recipe: "Recipe",
    valid_sources: Files,
    valid_targets: Files,
    tokenizer: Path | None,
    quiet: bool,
    workers: int | None = None,
) -> "Report":
    """Prepare data, with progress on stderr unless `quiet`; SIGTERM leaves no trace either."""
    from contextlib import nullcontext

    from regard.data.prepare import prepare as prepared

    with (
        leaving_on_sigterm(),
        nullcontext(lambda _: None) if quiet else PreparationDisplay() as display,
    ):
        return prepared(
            sources,
            targets,
            out,
            recipe,
            valid_sources=valid_sources,
            valid_targets=valid_targets,
            tokenizer=tokenizer,
            workers=workers,
            progress=display,
        )


@contextmanager
def leaving_on_sigterm() -> Iterator[None]:
    """Within the block, SIGTERM is an exit, with the status that a shell gives it."""

    def leave(signum: int, _: object) -> None:
        sys.exit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class PreparationDisplay:
    """Shows each reading of the text: a bar on a terminal, plain lines elsewhere."""

    NAMES = {"survey": "checking", "learn": "learning sub-words", "encode": "encoding"}  # noqa: RUF012
    PLAIN_LINE_SECONDS = 10.0

    def __init__(self, what: str = "pairs") -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        from regard.cli.console import console

        self._what = what
        self._plain = not console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description:18}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=console,
            disable=self._plain,
        )
        self._task = self._bar.add_task("", total=None, speed="")
        self._stage = ""
        self._began = self._shown = 0.0

    def __enter__(self) -> "PreparationDisplay":
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def __call__(self, progress: "Progress") -> None:
        """Show how far a reading is."""
        from regard.cli.console import note

        now, name = time.monotonic(), self.NAMES[progress.stage]
        if progress.stage != self._stage:
            self._stage, self._began, self._shown = progress.stage, now, now
            self._bar.reset(self._task, description=name, total=progress.total)
        speed = f"{progress.pairs / max(now - self._began, 1e-3):,.0f} {self._what}/s"
        self._bar.update(self._task, completed=progress.done, speed=speed)
        last = 0 < progress.done == progress.total
        if self._plain and (last or now - self._shown > self.PLAIN_LINE_SECONDS):
            self._shown = now
            left = (now - self._began) * (progress.total / max(progress.done, 1) - 1)
            share = progress.done / max(progress.total, 1)
            note(
                f"{name}: {share:.0%}, {progress.pairs:,} {self._what}, {speed}, {left:.0f} s left"
            )


def recipe_for(sources: Files) -> "Recipe":
    """The recipe that suits a corpus by its size; raises DataError where it cannot be read."""
    from itertools import chain, islice

    from regard.files.lines import read_lines, refuse_unreadable
    from regard.presets import SMALL_CORPUS, suited_to

    for path in sources:
        refuse_unreadable(path)
    lines = chain.from_iterable(read_lines(path) for path in sources)
    return suited_to(sum(1 for _ in islice(lines, SMALL_CORPUS + 1)))


def _told(report: "Report", out: Path, what: str = "pairs") -> str:
    train = report.train
    return "\n".join(
        [
            f"train       {_fates(train, what)}",
            f"valid       {_fates(report.valid, what)}",
            f"tokens      {train.source_tokens:,} source, {train.target_tokens:,} target",
            f"vocabulary  {report.vocabulary:,} entries, fingerprint {report.fingerprint[:12]}",
            f"{out}: done; train with: regard train --data {out} --out runs/x",
        ]
    )


def _fates(counts: "SplitCounts", what: str) -> str:
    dropped = (
        f"{counts.empty:,} empty, {counts.too_long:,} too long, {counts.ratio:,} by ratio, "
        f"{counts.duplicates:,} duplicates, {counts.held_out:,} held out"
    )
    return f"{counts.kept:,} {what} of {counts.read:,} ({dropped})"
