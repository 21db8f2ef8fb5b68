"""Context managers that turn SIGTERM and SIGHUP into SystemExit; one also shows progress."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regard.machine.interrupt import handled_by

if TYPE_CHECKING:
    from regard.data.aligned import Progress


@contextmanager
def preparing(quiet: bool, what: str) -> "Iterator[Callable[[Progress], object]]":
    """A context in which data is prepared, and SIGTERM or SIGHUP raises SystemExit.

    Yields a function to call with each `Progress`. The function shows the progress, counted in
    `what`: "pairs" or "trees". If `quiet` is True, the function does nothing. Signals are handled
    by `ended_by_sigterm`.
    """
    with ended_by_sigterm():
        if quiet:
            yield lambda _: None
        else:
            from regard.cli.progress import PreparationDisplay

            with PreparationDisplay(what) as display:
                yield display


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """A context in which SIGTERM or SIGHUP raises SystemExit, so that unfinished files are removed.

    The exit status is 143 after SIGTERM, and 129 after SIGHUP. SIGHUP stays ignored if it is
    ignored already, for example because of `nohup`.
    """
    came: list[int] = []

    def leave(signum: int, _: object) -> None:
        came.append(signum)
        sys.exit(128 + signum)

    with handled_by(leave, (signal.SIGTERM, signal.SIGHUP)):
        yield
        if came:  # C code called in the block, such as a compiler, has dropped the SystemExit
            sys.exit(128 + came[0])
