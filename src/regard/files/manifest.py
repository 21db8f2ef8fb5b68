"""manifest.json describes a directory, and shows whether files of a sealed directory are damaged.

The manifest of a sealed directory lists files, with a checksum of each, and has a checksum of
itself. Other files may be in the directory, too; they are not verified. When the directory is
verified, a ModelError names the first listed file that has changed.
"""

import errno
import hashlib
import json
import reprlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from regard.errors import ModelError, Unreadable
from regard.files.regular import COPY_AGAIN, checksum, read_regular, reason
from regard.files.whole import fresh_folder, new_directory, refusing_write_errors, replace_files

MANIFEST = "manifest.json"
SEAL = ("format", "files", "checksum")
"""Keys of a manifest that `seal` writes itself."""
SEALED_FORMAT = 1
"""Format version of sealed directories: models, checkpoints, exported directories, and folders of
unfinished translations (`files.blocks`)."""
LONGEST_MANIFEST = 2**20
"""A manifest with more bytes than this is refused, unless the user made it. The manifest of a model
usually has a few thousand bytes."""
MISSING = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL}
"""If opening a file fails with one of these errno values, the file is missing or not regular."""


def write_sealed(path: Path, fill: Callable[[Path], None], about: dict[str, Any]) -> None:
    """Make a sealed directory: the files that `fill` writes, and a manifest that includes `about`.

    Raises RegardError if the directory cannot be written; then no directory is made.
    """
    with refusing_write_errors(path), new_directory(path) as folder:
        _fill(folder, fill, about)


def replace_sealed(path: Path, fill: Callable[[Path], None], about: dict[str, Any]) -> None:
    """Replace the manifest of a directory, and the files that `fill` writes; other files stay.

    Raises RegardError if the files cannot be written. After a kill, the directory has the old files
    or the new ones, or else no manifest.
    """
    with refusing_write_errors(path), fresh_folder(path / ".sealed.tmp") as folder:
        _fill(folder, fill, about)
        replace_files(path, folder, MANIFEST)


def replace_file(path: Path, name: str, content: bytes, **about: Any) -> bool:
    """Replace one file of a sealed directory; set its checksum and `about` in the manifest.

    The other files are not verified. Returns True after the replacement. Returns False, and changes
    nothing, if the manifest is missing or damaged, or cannot be read. Raises RegardError if a file
    cannot be written. After a kill, the directory has the old file or the new one, or else no
    manifest.
    """
    try:
        manifest = read_manifest(path)
        if manifest.pop("checksum", None) != _own_checksum(manifest):
            return False
        files = manifest.pop("files") | {name: hashlib.sha256(content).hexdigest()}
    except (OSError, ValueError, LookupError, TypeError):
        return False
    manifest |= {**about, "files": files}
    manifest["checksum"] = _own_checksum(manifest)
    with refusing_write_errors(path), fresh_folder(path / ".sealed.tmp") as folder:
        (folder / name).write_bytes(content)
        write_manifest(folder, manifest)
        replace_files(path, folder, MANIFEST)
    return True


def _fill(folder: Path, fill: Callable[[Path], None], about: dict[str, Any]) -> None:
    fill(folder)
    seal(folder, sorted(file.name for file in folder.iterdir()), about)


def seal(directory: Path, names: Iterable[str], about: dict[str, Any]) -> None:
    """Write the manifest: format, `about`, checksums of the named files and of the manifest.

    Raises OSError if a file cannot be read, or the manifest cannot be written.
    """
    manifest = {"format": SEALED_FORMAT, **about}
    manifest["files"] = {name: checksum(directory / name) for name in names}
    manifest["checksum"] = _own_checksum(manifest)
    write_manifest(directory, manifest)


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """Write manifest.json into a directory that is not in use yet; raises OSError if this fails."""
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    # A name that is not UTF-8 is written with escapes, which json reads as the same name.
    (directory / MANIFEST).write_text(text, encoding="utf-8", errors="backslashreplace")


def unseal(directory: Path) -> dict[str, Any]:
    """Verify the manifest and every file that it lists; return the manifest without its checksum.

    Raises ModelError, which names the path, if a file is missing, damaged, not a regular file or
    outside the directory. Raises Unreadable if a file may be undamaged but cannot be read now, or
    if the directory has another version's format.
    """
    path = directory / MANIFEST
    try:
        manifest = read_manifest(directory)
        intact = manifest.pop("checksum", None) == _own_checksum(manifest)
    except FileNotFoundError:
        inside = _model_inside(directory)
        remedy = f"name a run, such as {inside}" if inside else COPY_AGAIN
        raise ModelError(
            f"{directory}: no manifest.json: not a whole model or checkpoint: {remedy}"
        ) from None
    except NotADirectoryError:
        raise ModelError(f"{directory}: is a file: name the directory that holds it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _refusal(path, error) from None
    if not intact:
        raise ModelError(f"{path}: damaged: its checksum does not match: {COPY_AGAIN}")
    if manifest.get("format") != SEALED_FORMAT:
        raise Unreadable(
            f"{path}: is of format {reprlib.repr(manifest.get('format'))}, and this version reads "
            f"{SEALED_FORMAT}: use the version of regard that wrote it"
        )
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise ModelError(f"{path}: lists no files: {COPY_AGAIN}")
    for name, expected in files.items():
        _verify(directory, name, expected)
    return manifest


def _model_inside(directory: Path) -> Path | None:
    """The folder of the first model that is one or two levels below a directory, or None."""
    found = (
        path for depth in ("*", "*/*") for path in sorted(directory.glob(f"{depth}/{MANIFEST}"))
    )
    return next(
        (path.parent for path in found if (path.parent / "model.safetensors").exists()), None
    )


def read_manifest(directory: Path, *, own: bool = False) -> dict[str, Any]:
    """The JSON object in a manifest; no checksum is verified.

    The manifest must be a regular file of at most LONGEST_MANIFEST bytes, unless `own` says that
    the user made it. Raises OSError if it cannot be read, ValueError if it is too long or not a
    JSON object.
    """
    path = directory / MANIFEST
    content = path.read_bytes() if own else read_regular(path, LONGEST_MANIFEST)
    try:
        manifest = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(manifest, dict):
        raise ValueError("not a JSON object")
    return manifest


def _verify(directory: Path, name: str, expected: Any) -> None:
    if Path(name).name != name or "\0" in name:
        raise ModelError(
            f"{directory / MANIFEST}: lists a file outside its directory, {name!r}: "
            "do not use this model"
        )
    try:
        intact = checksum(directory / name) == expected
    except (OSError, ValueError) as error:
        raise _refusal(directory / name, error) from None
    if not intact:
        raise ModelError(f"{directory / name}: damaged: its checksum does not match: {COPY_AGAIN}")


def _own_checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _refusal(path: Path, error: Exception) -> ModelError:
    """The error to raise if reading a file failed: damaged, missing, or unreadable for now."""
    if not isinstance(error, OSError):
        return ModelError(f"{path}: damaged: {error}: {COPY_AGAIN}")
    if error.errno in MISSING:
        return ModelError(f"{path}: {reason(error)}: {COPY_AGAIN}")
    return Unreadable(f"{path}: cannot be read: {reason(error)}")
