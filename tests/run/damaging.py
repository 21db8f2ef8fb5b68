"""Random damage to the files of a folder, as disks, copies and people do it."""

import json
import os
import random
import shutil
import string
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def damage(folder: Path, draw: random.Random) -> str:
    """Do one harm to one of a folder's files; returns which, in words."""
    path = draw.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    harm = draw.choice(HARMS)
    if not harm(path, draw):  # nothing to do it to
        return damage(folder, draw)
    name = harm.__name__.strip("_").replace("_", " ")
    return f"{name}: {path.name}"


def _flip(path: Path, draw: random.Random) -> bool:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    return True


def _cut(path: Path, draw: random.Random) -> bool:
    os.truncate(path, draw.randrange(path.stat().st_size))
    return True


def _empty(path: Path, draw: random.Random) -> bool:
    os.truncate(path, 0)
    return True


def _append(path: Path, draw: random.Random) -> bool:
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.randint(1, 100)))
    return True


def _overwrite_with_zeros(path: Path, draw: random.Random) -> bool:
    content = bytearray(path.read_bytes())
    start = draw.randrange(len(content))
    length = min(draw.randint(1, 4096), len(content) - start)
    if not any(content[start : start + length]):
        return False
    content[start : start + length] = bytes(length)
    path.write_bytes(content)
    return True


def _delete(path: Path, draw: random.Random) -> bool:
    path.unlink()
    return True


def _swap(path: Path, draw: random.Random) -> bool:
    """With another file, of this folder or of one beside it."""
    others = [other for other in path.parent.parent.glob("*/*") if other.is_file()]
    others = [other for other in others if other.read_bytes() != path.read_bytes()]
    if not others:
        return False
    other, between = draw.choice(others), path.with_name("between")
    path.rename(between)
    other.rename(path)
    between.rename(other)
    return True


def _replace_by_a_folder(path: Path, draw: random.Random) -> bool:
    path.unlink()
    path.mkdir()
    return True


def _replace_by_a_link(path: Path, draw: random.Random) -> bool:
    """To another file, to nothing, to a device without end, or to a copy of itself."""
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    others = [other for other in path.parent.iterdir() if other != path]
    target = draw.choice([*others, path.with_name("nothing"), Path("/dev/zero")])
    path.unlink()
    path.symlink_to(target)
    return True


def _change_a_character(path: Path, draw: random.Random) -> bool:
    """A digit or letter for another, so that JSON stays JSON and TOML stays TOML."""
    parse: Callable[[str], object] | None = {".json": json.loads, ".toml": tomllib.loads}.get(
        path.suffix
    )
    if parse is None:
        return False
    content = path.read_text("utf-8")
    letters = string.digits + string.ascii_letters
    places = [i for i, character in enumerate(content) if character in letters]
    while True:
        i = draw.choice(places)
        alphabet = string.digits if content[i] in string.digits else string.ascii_letters
        changed = content[:i] + draw.choice(alphabet) + content[i + 1 :]
        with suppress(ValueError):
            if parse(changed) != parse(content):
                path.write_text(changed, "utf-8")
                return True


HARMS = (
    *(_flip, _cut, _empty, _append, _overwrite_with_zeros, _delete, _swap),
    *(_replace_by_a_folder, _replace_by_a_link, _change_a_character),
)
