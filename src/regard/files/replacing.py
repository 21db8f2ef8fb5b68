"""A directory that is replaced as a whole: a kill leaves the earlier one, or what becomes of it.

Several processes may write the same directory, and nobody owns the folder around it. Beside `out`,
each writer has, with a number of its own:

    .out.12345678.lock       locked until the writer ends, however it ends
    .out.12345678.partial    the directory that is being written
    .out.12345678.earlier    the directory that is being replaced, for an instant

After a kill the next writer puts the earlier directory back, or removes it if it has a successor.
"""

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import DataError
from regard.files.whole import parents_made, sync, sync_all

LOCK, PARTIAL, EARLIER = ".lock", ".partial", ".earlier"


@contextmanager
def whole_or_nothing(out: Path, may_replace: Callable[[Path], bool]) -> Iterator[Path]:
    """A folder to write files into, which gets the name `out` at the end of the block.

    If the block raises, `out` stays as it was. What killed writers left beside `out` is cleared.
    Raises DataError if `out` cannot be written, or holds something that `may_replace` denies.
    """
    _refuse_other_content(out, may_replace)
    place = out.resolve()
    try:
        with parents_made(place):
            _clear_leftovers(place)
            with _claimed(place) as folder:
                yield folder
                sync_all(folder)
                _move_to(place, folder)
    except OSError as error:
        raise DataError(
            f"cannot be written: {error.strerror or error}; nothing is left half-written, make "
            "room there or choose another --out",
            out,
        ) from None


def _refuse_other_content(out: Path, may_replace: Callable[[Path], bool]) -> None:
    try:
        if not out.exists() or not any(out.iterdir()):
            return
    except NotADirectoryError:
        raise DataError("is a file: choose another --out, for a directory", out) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", out) from None
    if not may_replace(out):
        raise DataError("is not empty, and not prepared data to replace: choose another --out", out)


@contextmanager
def _claimed(place: Path) -> Iterator[Path]:
    """A new folder beside `place`, and a lock that tells other writers that it is in use."""
    handle = None
    while (
        handle is None
    ):  # another writer that clears leftovers may remove the lock before it is held
        lock = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}{LOCK}")
        handle = _locked(lock, without_locks=True)
    folder = lock.with_suffix(PARTIAL)
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink(missing_ok=True)
        os.close(handle)


def _clear_leftovers(place: Path) -> None:
    """Remove what is beside `place` and belongs to no living process."""
    leftover = re.compile(
        re.escape(f".{place.name}.") + f"[0-9a-f]{{8}}({LOCK}|{PARTIAL}|{EARLIER})"
    )
    numbers = {path.stem for path in place.parent.iterdir() if leftover.fullmatch(path.name)}
    for number in sorted(numbers):
        lock, partial, earlier = (place.with_name(number + end) for end in (LOCK, PARTIAL, EARLIER))
        with suppress(OSError):  # they may belong to another user
            handle = _locked(lock, without_locks=False)
            if handle is not None:
                if earlier.exists() and not place.exists():
                    earlier.rename(place)
                for folder in (partial, earlier):
                    shutil.rmtree(folder, ignore_errors=True)
                lock.unlink()
                os.close(handle)


def _locked(lock: Path, *, without_locks: bool) -> int | None:
    """Create a lock file and lock it until the returned handle is closed.

    Returns None if another process holds or has removed it. Some file systems have no locks, and
    then nothing tells whether the writer lives: `without_locks` says whether to go on.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = os.path.samestat(os.fstat(handle), lock.stat())
    except (BlockingIOError, FileNotFoundError):
        mine = False
    except OSError:
        mine = without_locks
    if mine:
        return handle
    os.close(handle)
    return None


def _move_to(place: Path, folder: Path) -> None:
    """Give a complete folder its name; the earlier directory goes when it has a successor."""
    earlier = folder.with_suffix(EARLIER)
    replacing = place.exists()
    if replacing:
        place.rename(earlier)
    try:
        folder.rename(place)
    except OSError:
        if replacing:
            earlier.rename(place)
        raise
    sync(place.parent)
    shutil.rmtree(earlier, ignore_errors=True)
