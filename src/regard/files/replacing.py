"""A directory that is replaced as a whole; even a kill never loses the earlier directory.

Several processes may write the same directory `out` at the same time. In the folder that holds
`out`, each writer has three paths with its own number:

    .out.12345678.lock       locked until the writer ends, in whatever way
    .out.12345678.partial    the new directory, while it is written
    .out.12345678.earlier    the earlier directory, while it is replaced

If there is no `out` after a kill, the next writer renames the earlier directory to `out`. If there
is an `out`, the next writer removes the earlier directory.
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
from regard.files.whole import fresh_folder, parents_made, refuse_current, sync, sync_all

LOCK, PARTIAL, EARLIER = ".lock", ".partial", ".earlier"


@contextmanager
def whole_or_nothing(out: Path, may_replace: Callable[[Path], bool]) -> Iterator[Path]:
    """A folder to write files into, which gets the name `out` at the end of the `with` block.

    If the block raises an exception, `out` is not changed. Leftovers of killed writers are removed.
    Raises DataError if `out` cannot be read or written, is a file or a mount point, or is not empty
    and `may_replace(out)` is False; RegardError if `out` is the current directory. An OSError that
    the block raises becomes a DataError.
    """
    _refuse_other_content(out, may_replace)
    place = Path(os.path.realpath(out))
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
    refuse_current(out)
    try:
        if out.is_mount():
            raise DataError("is a mount point, which nothing replaces: name a folder in it", out)
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
    """Make a folder beside `place`, and a lock that shows other writers that the folder is used."""
    handle = None
    while handle is None:  # try again if another writer removed the lock file as a leftover
        lock = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}{LOCK}")
        handle = _locked(lock, without_locks=True)
    try:
        with fresh_folder(lock.with_suffix(PARTIAL)) as folder:
            yield folder
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _clear_leftovers(place: Path) -> None:
    """Remove the files and folders beside `place` that its writers left when they were killed.

    If `place` does not exist, the earlier directory is renamed to `place`.
    """
    leftover = re.compile(
        re.escape(f".{place.name}.") + f"[0-9a-f]{{8}}({LOCK}|{PARTIAL}|{EARLIER})"
    )
    numbers = {path.stem for path in place.parent.iterdir() if leftover.fullmatch(path.name)}
    for number in sorted(numbers):
        lock, partial, earlier = (place.with_name(number + end) for end in (LOCK, PARTIAL, EARLIER))
        with suppress(OSError):  # the files may belong to another user
            handle = _locked(lock, without_locks=False)
            if handle is None:
                continue
            try:
                if earlier.exists() and not place.exists():
                    earlier.rename(place)
                for folder in (partial, earlier):
                    shutil.rmtree(folder, ignore_errors=True)
                lock.unlink()
            finally:
                os.close(handle)


def _locked(lock: Path, *, without_locks: bool) -> int | None:
    """Create or open a lock file, which stays locked until the returned handle is closed.

    Returns None if another process holds the lock or has removed the file. On a file system that
    has no locks, returns a handle if `without_locks`, else None.
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
    """Give a complete folder the name `place`, and then remove the earlier directory."""
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
