"""Harm to files on disk: a bit flipped, an end cut off, and checksums made right again after it."""

import hashlib
import json
from pathlib import Path
from typing import Any

from regard.files.manifest import seal


class Mark:
    """Unpickled, it leaves a file behind: whoever does that can be made to do anything."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def reseal(directory: Path, *more: str, **about: Any) -> None:
    """Make the checksums right again, as whoever means harm would."""
    manifest = json.loads((directory / "manifest.json").read_bytes())
    files = [*manifest.pop("files"), *more]
    manifest.pop("checksum")
    seal(directory, files, manifest | about)


def resealed(directory: Path, name: str, content: bytes) -> None:
    (directory / name).write_bytes(content)
    reseal(directory)


def seal_bare(directory: Path, about: dict[str, Any]) -> None:
    """A manifest whose checksum is right, with `about` for all of it."""
    manifest = {"format": 1, **about}
    checksum = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (directory / "manifest.json").write_text(json.dumps(manifest | {"checksum": checksum}))
