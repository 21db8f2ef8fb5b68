"""Files and directories that are written whole or not at all, whenever the process is killed.

Each is written under a temporary name beside its place, synced to the disk, and renamed. A kill or
a power cut leaves what was there before, and perhaps a temporary name for `remove_leftovers`.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from regard.errors import RegardError

LEFTOVERS = (".tmp", ".partial", ".earlier")
"""How the temporary names end, here and in `replacing`; they begin with a dot."""


@contextmanager
def refusing_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block, such as a full disk, into a RegardError of one sentence."""
    try:
        yield
    except OSError as error:
        raise RegardError(
            f"{path}: cannot write: {error.strerror or error}; nothing is left half-written, make "
            "room there or name another place"
        ) from None


def write_file(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole, or leave it as it was; text is written as UTF-8.

    Through a symbolic link the file that it points to is replaced. Raises RegardError if it cannot
    be written or is a device or pipe.
    """
    with refusing_write_errors(path):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OSError(errno.EINVAL, "is not a regular file")
        with new_file(path.resolve()) as file:
            file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def new_file(path: Path, temporary: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write into, which replaces `path` at the end of the block.

    If the block raises, `path` stays as it was. `temporary` is the file's name until then. Raises
    OSError.
    """
    temporary = temporary or _beside(path)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A folder to write files into, which gets the name `path` at the end of the block.

    If the block raises, the folder goes, and so do parents that were made for it. Raises OSError.
    """
    temporary = _beside(path)
    with parents_made(path):
        try:
            shutil.rmtree(temporary, ignore_errors=True)  # of a killed process of the same number
            temporary.mkdir()
            yield temporary
            sync_all(temporary)
            temporary.rename(path)
            sync(path.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


@contextmanager
def parents_made(path: Path) -> Iterator[None]:
    """Make the missing parents of a path; if the block raises, remove them again."""
    missing = [parent for parent in path.absolute().parents if not parent.exists()]
    try:
        if missing:
            path.parent.mkdir(parents=True)
        yield
    except BaseException:
        with suppress(OSError):
            for parent in missing:
                parent.rmdir()
        raise


def replace_files(directory: Path, folder: Path, last: str) -> None:
    """Move the files of a folder inside a directory into the directory; the folder goes.

    The file named `last` vouches for the others: its earlier version is removed before any of them
    is replaced, and it arrives after them. Whoever finds it finds the others as it describes them.
    """
    sync_all(folder)
    (directory / last).unlink(missing_ok=True)
    sync(directory)
    for path in sorted(folder.iterdir(), key=lambda path: path.name == last):
        path.replace(directory / path.name)
    sync(directory)
    folder.rmdir()


def remove_directory(path: Path) -> None:
    """Remove a directory if the system allows it; a kill leaves no half of it under its name."""
    temporary = _beside(path)
    with suppress(OSError):
        path.rename(temporary)
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink()


def remove_leftovers(directory: Path) -> None:
    """Remove what killed writers left in a directory; only its owner may call this."""
    with refusing_write_errors(directory):
        for path in directory.glob(".*"):
            if path.suffix in LEFTOVERS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def sync(path: Path) -> None:
    """Make what was written to a file, or renamed in a directory, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(directory: Path) -> None:
    """Sync each file of a directory, and the directory itself."""
    for path in sorted(directory.iterdir()):
        sync(path)
    sync(directory)


def _beside(path: Path) -> Path:
    """The temporary name of a path, which differs from that of any other living process."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")
