"""The folder in which compiled loops are kept, so that later commands need not compile them."""

import os
from pathlib import Path


def loops_folder() -> Path:
    """The folder for the loops of all versions: NUMBA_CACHE_DIR, or `regard` in the user's cache.

    Raises RuntimeError if neither NUMBA_CACHE_DIR nor XDG_CACHE_HOME is set and the user has no
    home.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(
        chosen or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "regard")
    )


def can_keep_loops() -> bool:
    """Whether the folder exists and can be written, or can be made."""
    try:
        folder = loops_folder().absolute()
    except RuntimeError:
        return False
    while not os.access(folder, os.F_OK) and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)
