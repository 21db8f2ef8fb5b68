"""The standard error stream: notes from all commands, and progress bars on a terminal."""

import sys
from pathlib import Path
from shutil import which

from rich.console import Console

console = Console(stderr=True, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """Write one line to standard error."""
    console.print(message, markup=False, emoji=False)


def called() -> str:
    """How to type `regard` here: its name, or its path if no environment is activated."""
    if which("regard"):
        return "regard"
    return sys.argv[0] if Path(sys.argv[0]).name == "regard" else f"{sys.executable} -m regard"
