"""An output made block by block: what is finished stays so, whatever ends a process.

Beside the output lies a folder: a manifest of what the output is made from, and a file for each
finished block of lines. Any number of processes fill it. Each claims a block before working on it;
a claim is a lock, and so ends with its process. When no block is missing they are joined, in order,
into the output, and the folder goes.
"""

import fcntl
import filecmp
import json
import os
import shutil
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.files.lines import checksum, read_lines, refuse_unreadable
from regard.files.whole import (
    refusing_write_errors,
    remove_directory,
    sync_directory,
    write_directory,
    write_file,
)

Lines = list[str]
POLL_SECONDS = 0.2


class Blocks:
    """The blocks of `out`, made from `source`, `size` lines each.

    `settings` is whatever else decides the output, by the name that a user knows it by; blocks made
    with others are refused. Raises DataError where the source is not a file that can be read again.
    """

    def __init__(self, source: Path, out: Path, size: int, settings: dict[str, Any]):
        refuse_unreadable(source)
        self.source, self.out, self.size = source, out, size
        self.folder = out.with_name(f".{out.name}.parts")
        self._state = _state(source)
        self._settings = {"input": checksum(source), **settings, "lines a block": size}
        self.lines = 0
        self.tokens: list[int] = []
        self._claims = -1

    def begin(self, measure: Callable[[Lines, int], int]) -> None:
        """Make the folder, or find it as an earlier process left it; for the first process alone.

        Before that every line is read: `measure` is given the lines of a block and the number of
        its first, from 0, and returns their source tokens or raises DataError. Raises RegardError
        where the folder is of another output, or the output is there already.
        """
        self._remove_leftovers()
        begun = self._read_manifest()
        if self.out.exists() and not (begun and not self.missing()):
            raise RegardError(f"{self.out}: exists already: remove it, or choose another --out")
        if not begun:
            self._survey(measure)
            about = {"settings": self._settings, "lines": self.lines, "tokens": self.tokens}
            write_directory(self.folder, lambda _: None, about)
        with refusing_write_errors(self.folder):
            self._open_claims()

    def join_in(self) -> bool:
        """Wait until the first process has begun; False where all is finished already."""
        while True:
            if self._read_manifest():
                with suppress(FileNotFoundError):  # joined since
                    self._open_claims()
                    return True
            elif self.out.exists():
                return False
            time.sleep(POLL_SECONDS)

    def write(
        self,
        translate: Callable[[Lines, int], str],
        listen: Callable[[set[int]], object] = lambda _: None,
        *,
        wait: bool,
    ) -> None:
        """Write each missing block that no other process has claimed.

        `translate` is given the lines of a block and the number of its first, from 0; `listen`, at
        times, the blocks that are missing. With `wait`, return when none is: what others claimed
        and did not finish is done here.
        """
        while missing := self.missing():
            if any(self._is_free(number) for number in sorted(missing)):
                self._write_free(missing, translate, listen)
            elif wait:
                listen(missing)
                time.sleep(POLL_SECONDS)
            else:
                return
        listen(missing)

    def join(self) -> None:
        """Make the output of all blocks and remove the folder; raises RegardError."""
        self._claim(len(self.tokens), wait=True)  # a second first process finds the work done
        if not self.folder.exists():
            return
        whole = self.folder / "whole"
        with refusing_write_errors(self.out):
            with whole.open("wb") as file:
                for number in range(len(self.tokens)):
                    with self._path(number).open("rb") as block:
                        shutil.copyfileobj(block, file)
                file.flush()
                os.fsync(file.fileno())
            if self.out.exists() and not filecmp.cmp(whole, self.out, shallow=False):
                raise RegardError(
                    f"{self.out}: has appeared meanwhile: move it away; the same command goes on"
                )
            whole.replace(self.out)
            sync_directory(self.out.parent)
        remove_directory(self.folder)

    def missing(self) -> set[int]:
        """The numbers of the blocks that nobody has finished."""
        try:
            names = os.listdir(self.folder)  # noqa: PTH208
        except FileNotFoundError:  # joined already
            return set()
        return set(range(len(self.tokens))) - {int(name) for name in names if name.isdigit()}

    def lines_of(self, blocks: Iterable[int]) -> int:
        """How many lines these blocks have."""
        return sum(min(self.size, self.lines - number * self.size) for number in blocks)

    def _write_free(
        self,
        missing: set[int],
        translate: Callable[[Lines, int], str],
        listen: Callable[[set[int]], object],
    ) -> None:
        lines = read_lines(self.source)
        for number in range(max(missing) + 1):
            some = islice(lines, self.size)
            if number not in missing or not self._claim(number):
                deque(some, maxlen=0)  # passed over
                continue
            block = list(some)
            if self._is_wanted(number):
                listen(self.missing())
                text = translate(block, number * self.size)
                self._refuse_change()
                write_file(self._path(number), text)
            self._release(number)

    def _survey(self, measure: Callable[[Lines, int], int]) -> None:
        lines = read_lines(self.source)
        while block := list(islice(lines, self.size)):
            self.tokens.append(measure(block, self.lines))
            self.lines += len(block)
        self._refuse_change()

    def _refuse_change(self) -> None:
        if _state(self.source) != self._state:
            raise RegardError(
                f"{self.source}: has changed while it was translated: put back what it was, or "
                "choose another --out"
            )

    def _read_manifest(self) -> bool:
        """Whether there is one; raises RegardError where it is of another output."""
        path = self.folder / "manifest.json"
        try:
            manifest = json.loads(path.read_bytes())
            begun, lines, tokens = (manifest[key] for key in ("settings", "lines", "tokens"))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(
                f"{path}: damaged: {error}: remove {self.folder} to begin anew"
            ) from None
        if changes := _differences(begun, self._settings):
            raise RegardError(
                f"{self.out}: was begun otherwise ({'; '.join(changes)}): give what it was begun "
                f"with, choose another --out, or remove {self.folder} to begin anew"
            )
        self.lines, self.tokens = lines, tokens
        return True

    def _remove_leftovers(self) -> None:
        """What a process left that was killed while it made or removed the folder."""
        if self.out.parent.is_dir():
            for path in self.out.parent.iterdir():
                if path.name.startswith(f".{self.folder.name}.") and path.suffix == ".tmp":
                    shutil.rmtree(path, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08}"

    def _is_wanted(self, number: int) -> bool:
        # In this order: a folder goes as a whole, and is still there after the block was not.
        return not self._path(number).exists() and self.folder.exists()

    def _open_claims(self) -> None:
        self._claims = os.open(self.folder / "claims", os.O_RDWR | os.O_CREAT, 0o666)
        weakref.finalize(self, os.close, self._claims)

    def _claim(self, number: int, *, wait: bool = False) -> bool:
        """Lock the byte of the claims that stands for a block; it need not exist."""
        kind = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        try:
            fcntl.lockf(self._claims, kind, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise RegardError(
                f"{self.folder}: cannot be locked: {error.strerror}: choose an --out on another "
                "file system"
            ) from None
        return True

    def _release(self, number: int) -> None:
        fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, number)

    def _is_free(self, number: int) -> bool:
        free = self._claim(number)
        if free:
            self._release(number)
        return free


def _state(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _differences(begun: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """Such as "beam 4 there, 1 here"; of a checksum the beginning."""
    return [
        f"{name} {str(begun.get(name))[:12]} there, {str(settings.get(name))[:12]} here"
        for name in {**begun, **settings}
        if begun.get(name) != settings.get(name)
    ]
