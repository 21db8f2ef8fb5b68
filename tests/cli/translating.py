"""Blocks of lines, in which `regard translate --out` keeps what is finished."""

from pathlib import Path

LINES = 256
"""Lines of a block."""
BLOCK = ["--window", str(LINES), "--no-retry"]
"""Without a second search, which most translations of this model would need."""


def finished(out: Path) -> int:
    """How many blocks are finished."""
    return sum(1 for path in out.with_name(f".{out.name}.parts").glob("[0-9]*"))
