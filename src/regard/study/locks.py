"""Locks on the disk, which end with the process that has them, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.files.whole import refusing_write_errors


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file during the block, and tell whether this process has it.

    With `wait` it waits for the process that has it; without, the block runs either way, and is
    told. Where a file system knows no locks, the lock is had. Raises RegardError if the file cannot
    be made.
    """
    with refusing_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _lock(handle, wait)
    finally:
        os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
