"""Read files that somebody else may have made: only regular files are opened.

A symbolic link could point to a private file of the user, and reading a pipe could wait for ever.
"""

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

COPY_AGAIN = "copy it again from where it came"
"""The remedy for a damaged file."""


def open_regular(path: Path) -> BufferedReader:
    """Open a file to read bytes; raises OSError if this fails, or if the file is not regular."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(errno.ELOOP, "is a symbolic link: put the file itself there") from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "is not a regular file")
    return os.fdopen(file, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """Read a regular file; raises OSError if this fails, ValueError for more than `most` bytes."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return content


def checksum(path: Path, *, follow_links: bool = False) -> str:
    """SHA-256 of a file's content, in hexadecimal digits; raises OSError if it cannot be read.

    `follow_links` allows links and all kinds of files; it is only for the user's own files.
    """
    with path.open("rb") if follow_links else open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identity(path: Path) -> tuple[int, ...]:
    """Inode, size in bytes, write time (ns): almost every change of the file changes one of them.

    Links are followed. Raises OSError if the file is missing or cannot be reached.
    """
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def reason(error: Exception) -> str | Exception:
    """The part of an error to show: the `strerror` of an OSError, or the error if it has none."""
    return error.strerror or error if isinstance(error, OSError) else error
