"""Write a converted model with its certificate; if an error occurs, no directory is written."""

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

    `fill` writes its files into a temporary folder. Then `prove` is called with this folder, and
    returns the certificate. At the end, the folder gets the name `out`. The directory is sealed:
    its manifest has the checksums of all files, and the entries of `about`. If `fill` or `prove`
    raises an error, the folder is removed. Raises RegardError if `out` cannot be written, or if
    `refuse_existing` refuses `out`.
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
    """Raise RegardError if `out` exists already and is not an empty directory.

    The current directory is refused even if it is empty. A symbolic link, a path that cannot be
    reached, and a directory that cannot be read are refused, too.
    """
    refuse_current(out)
    with refusing_write_errors(out):
        if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
            raise RegardError(f"{out}: exists already: choose another --out, or remove it")
