"""The options that `regard translate` and `regard serve` refuse with `--engine`."""

from collections.abc import Sequence
from pathlib import Path

from regard.errors import RecipeError


def refuse_engine(models: Sequence[Path], precision: str, exact: bool | None) -> None:
    """Raise RecipeError for several models, and for options that an engine does not have."""
    given = {
        "several models": len(models) > 1,
        f"--precision {precision}": precision != "fp32",  # regard export chooses the precision
        "--exact": bool(exact),
    }
    for option, found in given.items():
        if found:
            raise RecipeError(f"--engine does not go with {option}: leave out one of the two")
