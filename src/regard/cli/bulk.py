"""`regard translate --out`: translates a large file in blocks of lines.

One process does the work, or all processes that torchrun starts share it. A finished block is kept
if a process ends, and the same command continues from the finished blocks.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from regard.cli.console import note
from regard.errors import RegardError
from regard.machine.interrupt import SIGNALS, handled_by

if TYPE_CHECKING:
    from regard.files.blocks import Blocks

Measure = Callable[[list[str], int], int]
"""A function that counts the source tokens of some lines. Its arguments are the lines and the
number of the first line, counted from 0."""

LEAST_LINES = 256
"""The number of lines in a block, before it is rounded up to a multiple of --window. The last block
of a file may have fewer lines."""
SECONDS_FIRST = 3.0
"""All processes may meet the same error. All but the first process wait this many seconds before
they raise the error, so that the first process reports it."""


@contextmanager
def after_the_first() -> Iterator[None]:
    """Delay a RegardError by SECONDS_FIRST, in all processes except the first.

    When the first process fails, torchrun ends the other processes before they show their errors.
    """
    try:
        yield
    except RegardError:
        if not _is_first():
            time.sleep(SECONDS_FIRST)
        raise


def translate_file(
    source: Path,
    out: Path,
    models: Sequence[Path],
    settings: dict[str, Any],
    measure: Measure,
    translate: Callable[[Iterable[str], int], Iterator[str]],
    *,
    quiet: bool,
) -> int:
    """Translate the file `source` into the file `out`, block by block; return the number of lines.

    A process that is not the first returns 0 if `out` was finished before the process began.
    `settings` has everything that the output depends on, except the models and the text.
    `translate` takes the same arguments as `measure`, and yields the translation of each line
    without the line feed at its end. Raises RegardError if `out` exists and not all of its blocks
    are finished, or if `out` is standard output or a path without a file name, such as . or /. Also
    raises RegardError if an unfinished `out` was begun with another text, other models or other
    settings, or if `source`, `out` or a model cannot be used. Raises SystemExit after a signal.
    """
    from regard.cli.progress import BulkDisplay
    from regard.files.blocks import Blocks

    if str(out) == "-" or not out.name:
        raise RegardError(f"--out {out}: it names a file to make; leave it out for standard output")
    size = settings["window"] * -(-LEAST_LINES // settings["window"])
    blocks = Blocks(source, out, size, {"model": _fingerprint(models), **settings})

    def text_of(lines: list[str], first: int) -> str:
        return "".join(f"{text}\n" for text in translate(lines, first))

    if not _is_first():
        if blocks.join_in():
            with stopped_by_signals():
                blocks.write(text_of, wait=False)
        return blocks.lines
    with nullcontext() if quiet else BulkDisplay(blocks) as display:
        blocks.begin(measure if display is None else display.checking(measure))
        with stopped_by_signals(blocks):
            blocks.write(text_of, display or (lambda _: None), wait=True)
            blocks.join()
    return blocks.lines


@contextmanager
def stopped_by_signals(blocks: "Blocks | None" = None) -> Iterator[None]:
    """A context in which SIGNALS end the command, with exit status 128 + signal number.

    If `blocks` are given, a note first says how many of their lines are finished. If SIGHUP is
    ignored, for example by `nohup`, it stays ignored.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        for again in SIGNALS:  # a second signal must not interrupt the message
            if signal.getsignal(again) is stop:
                signal.signal(again, signal.SIG_IGN)
        raise SystemExit(128 + signum)

    with handled_by(stop):
        try:
            yield
        except SystemExit:
            if blocks:
                done = blocks.lines - blocks.lines_of(blocks.missing())
                note(
                    f"{blocks.out}: stopped with {done:,} of {blocks.lines:,} lines finished, "
                    "which are kept; the same command continues from them"
                )
            raise


def _is_first() -> bool:
    return (os.environ.get("RANK") or "0") == "0"


def _fingerprint(models: Sequence[Path]) -> str:
    """A checksum of all files of these models; raises ModelError if a model is damaged."""
    from hashlib import sha256

    from regard.files.manifest import unseal

    listed = "".join(json.dumps(unseal(model)["files"], sort_keys=True) for model in models)
    return sha256(listed.encode()).hexdigest()
