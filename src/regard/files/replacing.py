"""Prepared data is written beside its place and moved there when complete: a kill at any instant
leaves what was there before, or what the next preparation puts back.

What a preparation of `out` has beside it, with a number of its own:

    .out.12345678.lock       locked until its process ends, however it ends
    .out.12345678.partial    the data that is being written
    .out.12345678.earlier    what had the name before, for an instant
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

LOCK, PARTIAL, EARLIER = ".lock", ".partial", ".earlier"


@contextmanager
def whole_or_nothing(out: Path, may_replace: Callable[[Path], bool]) -> Iterator[Path]:
    """A folder beside `out` to write into; it takes that name at the end, or leaves no trace.

    What killed processes left beside `out` is cleared. Raises DataError for an `out` that cannot be
    written or holds something else.
    """
    _refuse_other_content(out, may_replace)
    place = out.resolve()
    missing = [parent for parent in place.parents if not parent.exists()]
    try:
        if missing:
            place.parent.mkdir(parents=True)
        try:
            _clear_leftovers(place)
            with _claimed(place) as folder:
                yield folder
                _move_to(place, folder)
        except BaseException:
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
    """A new folder beside `place`, with a lock that tells others that somebody lives here."""
    handle = None
    while handle is None:  # who clears may take a new lock for an old one, and take it away
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
        with suppress(OSError):  # of another user, perhaps
            handle = _locked(lock, without_locks=False)
            if handle is not None:
                if earlier.exists() and not place.exists():
                    earlier.rename(place)
                for folder in (partial, earlier):
                    shutil.rmtree(folder, ignore_errors=True)
                lock.unlink()
                os.close(handle)


def _locked(lock: Path, *, without_locks: bool) -> int | None:
    """Make a lock and hold it until it is closed; None where another process has or removed it.

    Some file systems have no locks. There nothing tells the living from the dead, and
    `without_locks` is whether to go on.
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
    """Give a complete folder its name; what had the name before goes when it has a successor."""
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
    _sync(place)
    _sync(place.parent)
    shutil.rmtree(earlier, ignore_errors=True)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
