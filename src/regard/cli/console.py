"""What all commands say on stderr, and how: plain notes, and bars on a terminal."""

import sys
from pathlib import Path
from shutil import which

from rich.console import Console

console = Console(stderr=True, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """One line on stderr."""
    console.print(message, markup=False, emoji=False)


def called() -> str:
    """How to type `regard` here: by its name, or its place where no environment is activated."""
    if which("regard"):
        return "regard"
    return sys.argv[0] if Path(sys.argv[0]).name == "regard" else f"{sys.executable} -m regard"
