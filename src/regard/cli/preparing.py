"""How a command prepares data: with progress, and without a trace if it is ended."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.data.aligned import Progress


@contextmanager
def preparing(quiet: bool, what: str = "pairs") -> "Iterator[Callable[[Progress], object]]":
    """A context for preparing data; yields a listener that shows progress, unless `quiet`.

    Progress is counted in `what`. SIGTERM ends the command as an exception does, so that nothing
    half-written is left, with the exit status 143.
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
