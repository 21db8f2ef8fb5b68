"""File locks; a lock is released when the process that holds it ends, in whatever way."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.files.whole import refusing_write_errors


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock a file while a `with` block runs; yield whether this process has the lock.

    With `wait`, the block begins when no other process has the lock. Without `wait`, it begins at
    once, and False is yielded if another process has the lock. On a file system without locks, True
    is yielded. Raises RegardError if the file cannot be made.
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
