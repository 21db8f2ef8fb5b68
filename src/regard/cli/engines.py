"""`--engine`: an exported directory, opened for `regard translate` and `regard serve`."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.translation import Translator


def open_engine(directory: Path, engine: str, threads: int) -> "Translator":
    """A translator by an engine; raises RecipeError, ModelError or MissingExtra."""
    from regard.engines.opening import load_exported
    from regard.machine.devices import set_threads

    set_threads(threads)
    return load_exported(directory, engine)
