"""`regard translate --out`: millions of lines, by one process or by all that torchrun starts."""

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import typer

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.files.blocks import Blocks

Measure = Callable[[list[str], int], int]

LEAST_LINES = 256
"""A block is one window of lines, or as many windows as make these."""
SECONDS_FIRST = 3.0
"""How long the first process has to report an error, before another does."""


@contextmanager
def after_the_first() -> Iterator[None]:
    """Let the first process report an error that all of them meet; then torchrun ends the rest."""
    try:
        yield
    except RegardError:
        if not _is_first():
            time.sleep(SECONDS_FIRST)
        raise


def translate_file(
    source: Path,
    out: Path,
    model: Path,
    settings: dict[str, Any],
    measure: Measure,
    translate: Callable[[Iterable[str], int], Iterator[str]],
    *,
    quiet: bool,
) -> None:
    """Translate the file `source` into the file `out`, block by block.

    `settings` holds all that decides the output besides the model and the text; the command
    continues only with the same. `measure` and `translate` are given lines, and the number of the
    first one, from 0. They return the source tokens of the lines, and their translations, without
    line feeds at the end.
    """
    from regard.files.blocks import Blocks

    if str(out) == "-":
        raise RegardError("--out -: it names a file to make; leave it out for standard output")
    size = settings["window"] * -(-LEAST_LINES // settings["window"])
    blocks = Blocks(source, out, size, {"model": _fingerprint(model), **settings})

    def text_of(lines: list[str], first: int) -> str:
        return "".join(f"{text}\n" for text in translate(lines, first))

    if not _is_first():
        if blocks.join_in():
            with stopped_by_signals():
                blocks.write(text_of, wait=False)
        return
    with nullcontext() if quiet else BulkDisplay(blocks) as display:
        blocks.begin(measure if display is None else display.checking(measure))
        with stopped_by_signals(blocks):
            blocks.write(text_of, display or (lambda _: None), wait=True)
            blocks.join()


@contextmanager
def stopped_by_signals(blocks: "Blocks | None" = None) -> Iterator[None]:
    """Within the block SIGINT and SIGTERM end the command; a note says how much is finished."""
    from regard.cli.console import note

    def stop(signum: int, frame: FrameType | None) -> None:
        for again in previous:
            signal.signal(again, signal.SIG_IGN)  # a second signal does not cut the note short
        raise _Stopped(128 + signum)

    previous = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except _Stopped as stopped:
        if blocks:
            done = blocks.lines - blocks.lines_of(blocks.missing())
            note(
                f"{blocks.out}: stopped with {done:,} of {blocks.lines:,} lines finished, which "
                "are kept; the same command continues from them"
            )
        raise typer.Exit(stopped.status) from None
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


class _Stopped(BaseException):
    """Raised by a signal; `status` is the exit status."""

    def __init__(self, status: int):
        self.status = status


class BulkDisplay:
    """Shows the progress of all processes together: a bar on a terminal, plain lines elsewhere.

    A context manager, which takes the bar down at its end.
    """

    PLAIN_LINE_SECONDS = 10.0

    def __init__(self, blocks: "Blocks"):
        from rich.progress import BarColumn, Progress, TextColumn

        from regard.cli.console import console

        self._blocks = blocks
        self._plain = not console.is_terminal
        self._bar = Progress(
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            console=console,
            disable=self._plain,
        )
        self._task = self._bar.add_task("checking", total=None)
        self._shown_at = time.monotonic()
        self._first: tuple[float, int, int] | None = None

    def __enter__(self) -> "BulkDisplay":
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def checking(self, measure: Measure) -> Measure:
        """`measure`, with a display of how many lines have been checked."""

        def shown(lines: list[str], first: int) -> int:
            self._show(f"checking {self._blocks.source}: {first:,} lines", at_once=False)
            return measure(lines, first)

        return shown

    def __call__(self, missing: set[int]) -> None:
        """Show how much is done, given the numbers of the blocks that are missing."""
        now, blocks = time.monotonic(), self._blocks
        lines, tokens = blocks.lines_of(missing), sum(blocks.tokens[n] for n in missing)
        begins = self._first is None
        self._first = self._first or (now, lines, tokens)
        began, lines_then, tokens_then = self._first
        text = f"{blocks.lines - lines:,} of {blocks.lines:,} lines"
        if tokens < tokens_then:
            seconds = now - began
            left = timedelta(seconds=round(seconds * tokens / (tokens_then - tokens)))
            text += (
                f"  {(lines_then - lines) / seconds:,.1f} lines/s  "
                f"{(tokens_then - tokens) / seconds:,.0f} source tokens/s  {left} left"
            )
        self._bar.update(self._task, total=blocks.lines, completed=blocks.lines - lines)
        self._show(text, at_once=begins or not missing)

    def _show(self, text: str, *, at_once: bool) -> None:
        from regard.cli.console import note

        self._bar.update(self._task, description=text)
        now = time.monotonic()
        if self._plain and (at_once or now - self._shown_at > self.PLAIN_LINE_SECONDS):
            self._shown_at = now
            note(text)


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _fingerprint(model: Path) -> str:
    """A checksum of all files of a model, which its translations depend on."""
    from regard.files.manifest import unseal

    files = unseal(model)["files"]
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
