"""Reading files that a stranger may have made: only regular files are opened.

A symbolic link could point into the reader's own files, and a pipe could keep the reader waiting
for ever.
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
    """Open a regular file to read; raises OSError if the path names anything else, or nothing."""
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


def checksum(path: Path, *, follow_links: bool = False) -> str:
    """SHA-256 of a file's content, in hexadecimal digits; raises OSError if it cannot be read.

    Only a user's own files may be reached through links.
    """
    with path.open("rb") if follow_links else open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def reason(error: Exception) -> str | Exception:
    """The part of an error to show: the system's own words, or else the error itself."""
    return error.strerror or error if isinstance(error, OSError) else error
