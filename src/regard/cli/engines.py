"""`--engine`: opens an exported directory for `regard translate` and `regard serve`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RecipeError

if TYPE_CHECKING:
    from regard.translation import Translator


def refuse_engine(models: Sequence[Path], precision: str, exact: bool | None) -> None:
    """Raise RecipeError for several models, and for options that an engine does not have."""
    given = {
        "several models": len(models) > 1,
        f"--precision {precision}": precision != "fp32",  # regard export chooses the precision
        "--exact": bool(exact),
    }
    for option, found in given.items():
        if found:
            raise RecipeError(f"{option}: an engine does not do that: leave out it or --engine")


def open_engine(directory: Path, engine: str) -> "Translator":
    """A translator whose model is computed by `engine`, with as many threads as PyTorch uses.

    Raises RecipeError for an unknown engine, MissingExtra if the engine is not installed, and
    ModelError if the directory was not exported for the engine.
    """
    from regard.engines.opening import load_exported

    return load_exported(directory, engine)
