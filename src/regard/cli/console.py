"""What all commands say on stderr, and how: plain notes, and bars on a terminal."""

from rich.console import Console

console = Console(stderr=True, highlight=False, soft_wrap=True)


def note(message: str) -> None:
    """One line on stderr."""
    console.print(message, markup=False)
