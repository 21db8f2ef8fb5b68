"""An output file that is made block by block: finished blocks survive the end of a process.

A folder beside the output has a manifest, which says what the output is made from, and a file for
each finished block of lines. Any number of processes can work at the same time. A process claims a
block before it translates the block. A claim is a lock in the file "claims" of the folder; the lock
is released when the block is written or the process ends. When no block is missing, the blocks are
joined in order into the output, and the folder is removed.
"""

import fcntl
import filecmp
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
from regard.files.lines import read_lines, refuse_unreadable, text_checksum
from regard.files.manifest import MANIFEST, read_manifest, write_sealed
from regard.files.regular import identity
from regard.files.whole import new_file, refusing_write_errors, remove_directory, write_file

Lines = list[str]
POLL_SECONDS = 0.2
"""Seconds after which a waiting process checks the folder again."""


class Blocks:
    """The blocks of the file `out`, each made from at most `size` lines of the file `source`.

    `settings` has all other values that the output depends on, under names that the user sees;
    blocks that were made with other settings are refused. Raises DataError if `source` is not a
    file that can be read more than once.
    """

    def __init__(self, source: Path, out: Path, size: int, settings: dict[str, Any]):
        refuse_unreadable(source)
        self.source, self.out, self.size = source, out, size
        self.folder = out.with_name(f".{out.name}.parts")
        self._state = identity(source)
        self._settings = {"input": text_checksum(source), **settings, "lines a block": size}
        self.lines = 0
        self.tokens: list[int] = []
        self._claims = -1

    def begin(self, measure: Callable[[Lines, int], int]) -> None:
        """Make the folder, or open it if it exists; only the process of rank 0 may call this.

        Before the folder is made, every line is read: `measure` is called with the lines of a block
        and the number of its first line, from 0. `measure` returns the number of the block's source
        tokens, or raises DataError. Raises RegardError if the folder cannot be made or opened, is
        damaged or was begun with other settings. Also raises RegardError if the output exists
        although blocks are missing, or if `source` cannot be read or changes while it is read.
        """
        begun = self._read_manifest()
        if not begun or self.missing():
            self._refuse_existing()
        if not begun:
            self._survey(measure)
            self._refuse_existing()  # another command may have begun and ended meanwhile
            about = {"settings": self._settings, "lines": self.lines, "tokens": self.tokens}
            try:
                write_sealed(self.folder, lambda _: None, about)
            except RegardError:
                if not self._read_manifest():  # no other command has made the folder meanwhile
                    raise
        # The next line may remove a temporary folder in which another command still writes. Then
        # `write_sealed` fails in that command, which finds this command's manifest and joins in.
        self._remove_leftovers()
        with refusing_write_errors(self.folder):
            self._open_claims()

    def _refuse_existing(self) -> None:
        if self.out.exists():
            self._remove_leftovers()
            raise RegardError(f"{self.out}: exists already: remove it, or choose another --out")

    def join_in(self) -> bool:
        """Wait until the process of rank 0 has made the folder; then return True.

        Returns False if the output exists and the folder does not: either the blocks have been
        joined, or the output is an older file, which `begin` refuses. Raises RegardError if the
        manifest cannot be read, is damaged or has other settings, or if the file "claims" cannot be
        opened.
        """
        while True:
            if self._read_manifest():
                # If the folder is missing, the blocks have just been joined.
                with refusing_write_errors(self.folder), suppress(FileNotFoundError):
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

        `translate` is called with the lines of a block and the number of its first line, from 0,
        and returns the block's text. `listen` is called from time to time with the indices of the
        missing blocks. With `wait`, return only when no block is missing: if another process ends
        before its block is finished, this process writes the block. Raises RegardError if `source`
        has changed or cannot be read, or if a block cannot be locked or written.
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
        """Join all blocks into the output, and remove the folder.

        Raises RegardError if the folder cannot be locked, or if the output cannot be written or
        exists with different content.
        """
        self._claim(len(self.tokens), wait=True)  # wait if another process is joining the blocks
        if not self.folder.exists():
            return
        with (
            refusing_write_errors(self.out),
            new_file(self.out, temporary=self.folder / "whole") as whole,
        ):
            for number in range(len(self.tokens)):
                with self._path(number).open("rb") as block:
                    shutil.copyfileobj(block, whole)
            whole.flush()
            if self.out.exists() and not filecmp.cmp(whole.name, self.out, shallow=False):
                raise RegardError(
                    f"{self.out}: has appeared meanwhile: move it away; the same command goes on"
                )
        remove_directory(self.folder)

    def missing(self) -> set[int]:
        """The indices of the blocks that no process has finished."""
        try:
            names = os.listdir(self.folder)  # noqa: PTH208
        except FileNotFoundError:  # the folder is gone, because the blocks have been joined
            return set()
        return set(range(len(self.tokens))) - {int(name) for name in names if name.isdigit()}

    def lines_of(self, blocks: Iterable[int]) -> int:
        """The number of lines that the blocks with these indices have together."""
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
                deque(some, maxlen=0)  # skip the lines of this block
                continue
            block = list(some)
            # Another process may have written this block, and even joined all blocks and removed
            # the folder.
            if not self._path(number).exists() and self.folder.exists():
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
        with suppress(OSError):  # `source` may have been removed
            if identity(self.source) == self._state:
                return
        raise RegardError(
            f"{self.source}: has changed while it was translated: put back what it was, or "
            "choose another --out"
        )

    def _read_manifest(self) -> bool:
        """Read `lines` and `tokens` from the manifest; return False if there is no manifest.

        Raises RegardError if the manifest cannot be read, is damaged or has other settings.
        """
        try:
            manifest = read_manifest(self.folder, own=True)
            begun, lines, tokens = (manifest[key] for key in ("settings", "lines", "tokens"))
            begun = dict(begun)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise RegardError(
                f"{self.folder / MANIFEST}: cannot be read: {error.strerror or error}"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(
                f"{self.folder / MANIFEST}: damaged: {error}: remove {self.folder} to begin anew"
            ) from None
        if changes := _differences(begun, self._settings):
            raise RegardError(
                f"{self.out}: was begun otherwise ({'; '.join(changes)}): give what it was begun "
                f"with, choose another --out, or remove {self.folder} to begin anew"
            )
        self.lines, self.tokens = lines, tokens
        return True

    def _remove_leftovers(self) -> None:
        """Remove the temporary folders of processes that were killed while they made the folder."""
        for path in self.out.parent.glob(".*.tmp"):
            if path.name.startswith(f".{self.folder.name}."):
                shutil.rmtree(path, ignore_errors=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08}"

    def _open_claims(self) -> None:
        self._claims = os.open(self.folder / "claims", os.O_RDWR | os.O_CREAT, 0o666)
        weakref.finalize(self, os.close, self._claims)

    def _claim(self, number: int, *, wait: bool = False) -> bool:
        """Lock byte `number` of the file "claims"; the file may end before that byte.

        Returns True after locking. If another process holds the lock, this method waits if `wait`
        is True, and returns False if `wait` is False. Raises RegardError if locking fails for
        another reason, for example because the file system has no locks.
        """
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


def _differences(begun: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """A phrase for each setting that differs between `begun` and `settings`.

    For example, "beam 4 there, 1 here" says that the beam is 4 in `begun` and 1 in `settings`. A
    phrase has at most twelve characters of each value.
    """
    return [
        f"{name} {str(begun.get(name))[:12]} there, {str(settings.get(name))[:12]} here"
        for name in {**begun, **settings}
        if begun.get(name) != settings.get(name)
    ]
