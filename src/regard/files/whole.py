"""Files that survive a kill at any instant: written under a temporary name, fsynced, renamed.

A directory is sealed by its `manifest.json`, which carries the checksum of every other file and of
itself. What is read back is what was written, or a ModelError that names the file.
"""

import errno
import hashlib
import json
import os
import reprlib
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from regard.errors import ModelError, RegardError, Unreadable

FORMAT = 1
"""Version of model directories and checkpoints."""
LONGEST_MANIFEST = 2**20
"""Bytes of the largest manifest.json that is read; ours have some hundreds."""
LONGEST_HEADER = 2**23
"""Bytes of the longest header of tensors that is read; base's has 20,000."""
DAMAGE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL}
"""Of opening a file: something else, or nothing, is under its name."""
_COPY_AGAIN = "copy it again from where it came"
_INTACT = "nothing is left half-written, make room there or name another place"


@contextmanager
def refusing_write_errors(path: Path) -> Iterator[None]:
    """Turn a full disk or a read-only folder into one sentence."""
    try:
        yield
    except OSError as error:
        raise RegardError(f"{path}: cannot write: {error.strerror or error}; {_INTACT}") from None
    except safetensors.SafetensorError as error:
        raise RegardError(f"{path}: cannot write: {error}; {_INTACT}") from None


def write_file(path: Path, content: str | bytes) -> None:
    """Replace a file as a whole, or leave it as it was; a link stays one, a device is refused."""
    data = content.encode() if isinstance(content, str) else content
    with refusing_write_errors(path):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OSError(errno.EINVAL, "is not a regular file")
        path = path.resolve()
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_directory(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_directory(path: Path, fill: Callable[[Path], None], about: dict[str, Any]) -> None:
    """Make a sealed directory of the files that `fill` writes; `about` goes into its manifest."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    missing = [parent for parent in temporary.absolute().parents if not parent.exists()]
    with refusing_write_errors(path):
        try:
            shutil.rmtree(temporary, ignore_errors=True)  # of a killed process of the same number
            temporary.mkdir(parents=True)
            fill(temporary)
            names = sorted(file.name for file in temporary.iterdir())
            for name in names:
                sync_file(temporary / name)
            seal(temporary, names, about)
            temporary.rename(path)
            sync_directory(path.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            with suppress(OSError):
                for parent in missing:
                    parent.rmdir()
            raise


def remove_directory(path: Path) -> None:
    """Remove a directory if it can be, at once: a kill leaves no half of it under its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with suppress(OSError):
        path.rename(temporary)
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink()


def remove_leftovers(directory: Path) -> None:
    """Remove what writers that were killed left in a directory; only its owner may."""
    with refusing_write_errors(directory):
        for path in directory.glob(".*"):
            if path.suffix in (".tmp", ".partial", ".earlier"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def seal(directory: Path, names: Iterable[str], about: dict[str, Any]) -> None:
    """Write manifest.json: `about`, and the checksums of the named files and of itself."""
    manifest = {"format": FORMAT, **about}
    manifest["files"] = {name: file_checksum(directory / name) for name in names}
    manifest["checksum"] = _own_checksum(manifest)
    write_file(directory / "manifest.json", json.dumps(manifest, indent=1) + "\n")


def unseal(directory: Path) -> dict[str, Any]:
    """Read and verify manifest.json and every file it lists; raises ModelError naming the file."""
    path = directory / "manifest.json"
    try:
        manifest = read_manifest(directory)
        intact = manifest.pop("checksum", None) == _own_checksum(manifest)
    except FileNotFoundError:
        raise ModelError(
            f"{directory}: no manifest.json: not a whole model or checkpoint: {_COPY_AGAIN}"
        ) from None
    except NotADirectoryError:
        raise ModelError(f"{directory}: is a file: name the directory that holds it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _refusal(path, error) from None
    if not intact:
        raise ModelError(f"{path}: damaged: its checksum does not match: {_COPY_AGAIN}")
    if manifest.get("format") != FORMAT:
        raise Unreadable(
            f"{path}: is of format {reprlib.repr(manifest.get('format'))}, and this version reads "
            f"{FORMAT}: use the version of regard that wrote it"
        )
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise ModelError(f"{path}: lists no files: {_COPY_AGAIN}")
    for name, checksum in files.items():
        _verify(directory, name, checksum)
    return manifest


def read_manifest(directory: Path) -> dict[str, Any]:
    """What manifest.json says, unverified; raises OSError or ValueError where it is no manifest."""
    with open_file(directory / "manifest.json") as file:
        content = file.read(LONGEST_MANIFEST + 1)
    if len(content) > LONGEST_MANIFEST:
        raise ValueError(f"it has more than {LONGEST_MANIFEST:,} bytes")
    try:
        manifest = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(manifest, dict):
        raise ValueError("not a JSON object")
    return manifest


def open_file(path: Path) -> BufferedReader:
    """Open a regular file to read; raises OSError for any other thing under its name.

    Whoever made a directory could otherwise point into the reader's own files, or have the reader
    wait for a pipe that nobody writes to.
    """
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


def _verify(directory: Path, name: str, checksum: Any) -> None:
    if Path(name).name != name or "\0" in name:
        raise ModelError(
            f"{directory / 'manifest.json'}: lists a file outside its directory, {name!r}: "
            "do not use this model"
        )
    try:
        intact = file_checksum(directory / name) == checksum
    except (OSError, ValueError) as error:
        raise _refusal(directory / name, error) from None
    if not intact:
        raise ModelError(f"{directory / name}: damaged: its checksum does not match: {_COPY_AGAIN}")


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors as safetensors; views are copied out of their buffers."""
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    path.touch()
    mode = path.stat().st_mode  # as the user's umask has it; safetensors writes for the owner alone
    safetensors.torch.save_file(copies, path)
    path.chmod(mode)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read safetensors; raises ModelError for a damaged file. Nothing is ever unpickled."""
    try:
        with open_file(path) as file:
            if int.from_bytes(file.read(8), "little") > LONGEST_HEADER:
                raise ValueError(f"its header has more than {LONGEST_HEADER // 2**20} MiB")
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError, ValueError, KeyError) as error:
        raise ModelError(
            f"{path}: damaged or not safetensors: {_reason(error)}: {_COPY_AGAIN}"
        ) from None


def file_checksum(path: Path) -> str:
    """SHA-256 of a regular file's content."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_directory(path: Path) -> None:
    """Make a rename inside a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Make what was written to a file durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _own_checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _refusal(path: Path, error: Exception) -> ModelError:
    """What to raise for a file that could not be read; a transient error is no damage."""
    if not isinstance(error, OSError):
        return ModelError(f"{path}: damaged: {error}: {_COPY_AGAIN}")
    if error.errno in DAMAGE:
        return ModelError(f"{path}: {_reason(error)}: {_COPY_AGAIN}")
    return Unreadable(f"{path}: cannot be read: {_reason(error)}")


def _reason(error: Exception) -> str | Exception:
    return error.strerror or error if isinstance(error, OSError) else error
