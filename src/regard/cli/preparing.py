"""Shows progress while a command prepares data; after SIGTERM, no unfinished files are left."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.data.aligned import Progress


@contextmanager
def preparing(quiet: bool, what: str) -> "Iterator[Callable[[Progress], object]]":
    """A context in which SIGTERM raises SystemExit(143), so that unfinished files are removed.

    Yields a function to call with each `Progress`. The function shows the progress, counted in
    `what`: "pairs" or "trees". If `quiet` is True, the function does nothing.
    """

    def leave(signum: int, _: object) -> None:
        sys.exit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        if quiet:
            yield lambda _: None
        else:
            from regard.cli.progress import PreparationDisplay

            with PreparationDisplay(what) as display:
                yield display
    finally:
        signal.signal(signal.SIGTERM, before)
