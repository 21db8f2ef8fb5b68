"""Files and directories that are written completely or not at all, even if the process is killed.

A file or directory is written under a temporary name in the same folder, synced to the disk, and
renamed. After a kill or a power cut, the old version or the new version is there, and it is
complete. A temporary file or directory may be left; `remove_leftovers` removes it.
"""

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from regard.errors import DataError, RegardError

LEFTOVERS = re.compile(r"\..+\.[0-9]+\.tmp|\.sealed\.tmp|\.verify\..+\.tmp")
"""Matches the temporary names that regard uses in the directory of a run. The module `replacing`
uses other names, and removes its temporary files itself."""


@contextmanager
def refusing_write_errors(path: Path) -> Iterator[None]:
    """In a `with` block, turn an OSError, such as a full disk, into a RegardError about `path`."""
    try:
        yield
    except OSError as error:
        raise RegardError(
            f"{path}: cannot write: {error.strerror or error}; nothing is left half-written, make "
            "room there or name another place"
        ) from None


def write_file(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole, or leave it as it was; text is written as UTF-8.

    If the path is a symbolic link, the file that it points to is replaced. Raises RegardError if
    the file cannot be written, or is a device or a pipe.
    """
    with refusing_write_errors(path):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OSError(errno.EINVAL, "is not a regular file")
        with new_file(Path(os.path.realpath(path))) as file:
            file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def new_file(path: Path, temporary: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write into, which replaces `path` at the end of the `with` block.

    The file takes bytes. Until the block ends, it has the name `temporary`, by default a name that
    no other process uses. If the block raises an exception, `path` is not changed. Raises OSError
    if the file cannot be written.
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
    """A folder to write files into, which gets the name `path` at the end of the `with` block.

    If the block raises an exception, the folder and any parents made for it are removed. Raises
    OSError if the folder cannot be made or renamed.
    """
    with parents_made(path), fresh_folder(_beside(path)) as folder:
        yield folder
        sync_all(folder)
        folder.rename(path)
        sync(path.parent)


def refuse_current(path: Path) -> None:
    """Raise RegardError if `path`, which is to be replaced, is the current directory.

    After the replacement, a shell in `path` would still be in the old directory, which is removed.
    """
    with suppress(OSError):  # `path` or the current directory does not exist
        if path.samefile("."):
            raise RegardError(f"{path}: is the current directory: name a folder in it")


@contextmanager
def fresh_folder(path: Path) -> Iterator[Path]:
    """Make an empty folder, in place of one that a killed process may have left.

    The new folder is removed if the `with` block raises an exception. Raises OSError if the folder
    cannot be made.
    """
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.mkdir()
        yield path
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


@contextmanager
def parents_made(path: Path) -> Iterator[None]:
    """Make the missing parents of a path; if the `with` block raises, remove them again.

    Raises OSError if the parents cannot be made.
    """
    missing = [parent for parent in path.absolute().parents if not parent.exists()]
    try:
        if missing:
            path.parent.mkdir(parents=True, exist_ok=True)  # another process may make it, too
        yield
    except BaseException:
        with suppress(OSError):
            for parent in missing:
                parent.rmdir()
        raise


def refuse_unwritable(directory: Path) -> None:
    """Raise RegardError if no file can be made in a directory, which need not exist yet.

    Call this before long work, so that the work does not end in this error. No file is left behind.
    """
    with (
        suppress(_Tried),
        refusing_write_errors(directory),
        parents_made(directory / "file"),
        fresh_folder(_beside(directory / "file")),
    ):
        raise _Tried


class _Tried(Exception):
    """Raised after making a folder as a test, so that the folder is removed again."""


def refuse_filled(folder: Path) -> None:
    """Raise DataError if a folder exists and is not empty: its files may be the user's own."""
    if folder.is_dir() and any(folder.iterdir()):
        raise DataError("is not empty: choose another --out", folder)


def replace_files(directory: Path, folder: Path, last: str) -> None:
    """Move all files of `folder`, which is inside `directory`, into `directory`; remove `folder`.

    The file named `last` describes the other files. The old `last` is removed before any other file
    is replaced, and the new `last` is moved last: so `last` never describes a mixture of files.
    Raises OSError if a file cannot be moved or removed.
    """
    sync_all(folder)
    (directory / last).unlink(missing_ok=True)
    sync(directory)
    for path in sorted(folder.iterdir(), key=lambda path: path.name == last):
        path.replace(directory / path.name)
    sync(directory)
    folder.rmdir()


def remove_directory(path: Path) -> None:
    """Remove a directory, a file or a symbolic link, if the system allows it.

    It is renamed first, so that a kill never leaves a part of a directory under the name `path`.
    """
    temporary = _beside(path)
    with suppress(OSError):
        path.rename(temporary)
        if temporary.is_dir() and not temporary.is_symlink():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink()


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files and folders that killed writers left in `directory`.

    No other process may write there meanwhile. What cannot be removed, such as a file of another
    user, stays.
    """
    for path in directory.glob(".*.tmp"):
        if LEFTOVERS.fullmatch(path.name):
            with suppress(OSError):
                is_folder = path.is_dir() and not path.is_symlink()
                shutil.rmtree(path) if is_folder else path.unlink()


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a directory, survive a power cut.

    Raises OSError if the system cannot do this.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(directory: Path) -> None:
    """Call `sync` for each file of a directory, and for the directory itself."""
    for path in sorted(directory.iterdir()):
        sync(path)
    sync(directory)


def _beside(path: Path) -> Path:
    """A temporary name in the folder of `path`, which no other living process uses."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")
