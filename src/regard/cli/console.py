"""Standard error, where all commands write notes and progress bars."""

import sys
from pathlib import Path
from shutil import which

from rich.console import Console

console = Console(stderr=True, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """Write one line to standard error."""
    console.print(message, markup=False, emoji=False)


def called() -> str:
    """The command that runs regard: the name `regard` or, if a shell does not find it, a path.

    The path is the path of the script `regard` or, without a script, of Python with `-m regard`.
    """
    if which("regard"):
        return "regard"
    return sys.argv[0] if Path(sys.argv[0]).name == "regard" else f"{sys.executable} -m regard"
