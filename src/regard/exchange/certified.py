"""Write a directory together with its certificate, or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.exchange.certificate import Certificate
from regard.files.manifest import MANIFEST, seal
from regard.files.whole import new_directory, refuse_current, refusing_write_errors


def write_certified(
    out: Path,
    fill: Callable[[Path], None],
    prove: Callable[[Path], Certificate],
    about: dict[str, Any],
) -> Certificate:
    """Make the directory `out` with the files that `fill` writes, and with a certificate.

    `prove` makes the certificate from the complete folder, before the folder gets the name `out`.
    The directory is sealed: its manifest has the checksums of all files, and includes `about`. If
    `fill` or `prove` raises, nothing is left behind. Raises RegardError if `out` exists or cannot
    be written.
    """
    refuse_existing(out)
    with refusing_write_errors(out), new_directory(out) as folder:
        fill(folder)
        certificate = prove(folder)
        certificate.write(folder)
        names = sorted(file.name for file in folder.iterdir() if file.name != MANIFEST)
        seal(folder, names, about)
    return certificate


def refuse_existing(out: Path) -> None:
    """Raise RegardError if there is something at `out` already, except an empty directory.

    The current directory is refused, even if it is empty.
    """
    refuse_current(out)
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise RegardError(f"{out}: exists already: choose another --out, or remove it")
