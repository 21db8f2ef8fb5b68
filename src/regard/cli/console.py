"""Standard error, where all commands write notes and progress bars."""

import sys
from functools import cache
from pathlib import Path
from shlex import quote
from shutil import which
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from regard.parts.kept import Finished


@cache
def console() -> "Console":
    """The console of the library rich for standard error; rich is imported at the first call."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """Write one line to standard error."""
    console().print(message, markup=False, emoji=False)


def note_finished(done: "Finished") -> None:
    """Write a line of progress for a finished part of an experiment, with its scores."""
    names = {"bleu": "BLEU", "f1": "F1", "perplexity": "perplexity"}
    shown = [f"{label} {done.numbers[n]:.2f}" for n, label in names.items() if n in done.numbers]
    note(f"{done.number:>3} of {done.total}  {done.part}, seed {done.seed}  {', '.join(shown)}")


def called() -> str:
    """The command by which a shell can run regard, for examples that are printed.

    The command is `regard` if a shell finds that name. Otherwise it is the path of the running
    script `regard` or, without such a script, the path of Python followed by `-m regard`.
    """
    if which("regard"):
        return "regard"
    named = Path(sys.argv[0]).name == "regard"
    return quote(sys.argv[0]) if named else f"{quote(sys.executable)} -m regard"
