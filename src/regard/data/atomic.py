"""Prepared data is written beside its place and moved there when complete: a kill at any instant
leaves what was there before.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.data.pairs import FILES, is_prepared
from regard.errors import DataError


@contextmanager
def whole_or_nothing(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write into; it takes that name at the end, or leaves no trace."""
    _refuse_other_content(out)
    place = out.resolve()
    folder = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}.partial")
    missing = [parent for parent in place.parents if not parent.exists()]
    try:
        try:
            folder.mkdir(parents=True)
            yield folder
            _move_to(place, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                for parent in missing:
                    parent.rmdir()
            raise
    except OSError as error:
        raise DataError(
            f"cannot be written: {error.strerror or error}; nothing is left half-written, make "
            "room there or choose another --out",
            out,
        ) from None


def _refuse_other_content(out: Path) -> None:
    try:
        if not out.exists() or not (names := {path.name for path in out.iterdir()}):
            return
    except NotADirectoryError:
        raise DataError("is a file: choose another --out, for a directory", out) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", out) from None
    if not is_prepared(out) or names - FILES:
        raise DataError("is not empty, and not prepared data to replace: choose another --out", out)


def _move_to(place: Path, folder: Path) -> None:
    """Give a complete folder its name; what had the name before goes when it has a successor."""
    earlier = folder.with_suffix(".earlier")
    replacing = place.exists()
    if replacing:
        place.rename(earlier)
    try:
        folder.rename(place)
    except OSError:
        if replacing:
            earlier.rename(place)
        raise
    _sync(place)
    _sync(place.parent)
    shutil.rmtree(earlier, ignore_errors=True)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
