"""Stopping a writer at a chosen instant: by an error, by SIGKILL, or by a power cut.

An instant is the moment before a process opens a file to write, syncs, renames or removes one, or
makes or removes a directory. They are few, so that a test can go through all of them.
"""

import errno
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import context, forkserver
from pathlib import Path
from typing import Any

multiprocessing.get_context("forkserver").set_forkserver_preload(
    [
        "regard.cli.main",
        "regard.measure.validation",
        "regard.arithmetic.one_core",  # a plan loads these loops, in half a second
        "torch._dynamo",
        "pytest",
    ]
)


class Fork(context.ForkServerProcess):
    """A process that has the libraries already, and never looks for garbage in them.

    Each run collects garbage at its end. To look through the libraries would take 0.1 s each time.
    Each process that trains measures the speed of the processor, here by small matrices: with those
    of usual size, that would take 0.2 s.
    """

    def run(self) -> None:
        from regard.machine import speed

        speed.SIZE["cpu"], speed.LEAST_SECONDS = speed.LEAST_SIZE, 0.0
        gc.freeze()
        super().run()


def have_forks_served() -> None:
    """Start the process that makes forks, with the libraries named above, unless it runs."""
    forkserver.ensure_running()


def in_fork(work: Callable[..., object], *arguments: Any) -> None:
    """Do this in another process, which has the libraries already.

    The other process checks no shapes: a check takes as long as a small model computes, and cannot
    be traced by a compiler.
    """
    process = Fork(target=work, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0
    process.close()


FOLDER_HANDLE = {"os.rename": 2, "os.remove": 1, "os.mkdir": 2, "os.rmdir": 1}
"""By event, which argument is the open folder that its path starts from, or -1."""
_watching: list[Callable[[Path], None]] = []
_synced: set[int] = set()
_fsync = os.fsync


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching:
        return
    writes = event == "open" and arguments[2] and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if writes or event in FOLDER_HANDLE:
        folder = -1 if writes else arguments[FOLDER_HANDLE[event]]
        path = Path(os.fsdecode(arguments[0]))
        _watching[-1](_behind(folder) / path if folder >= 0 else path)


def _watched_fsync(handle: int) -> None:
    if _watching:
        _watching[-1](_behind(handle))
    _fsync(handle)
    _synced.add(os.fstat(handle).st_ino)


def _behind(handle: int) -> Path:
    return Path(f"/proc/self/fd/{handle}").readlink()


sys.addaudithook(_hear)  # for good: there is no taking it away


@contextmanager
def watching(act: Callable[[Path], None]) -> Iterator[None]:
    """Within the block, `act` at every instant; it is told the path concerned."""
    os.fsync = _watched_fsync
    _watching.append(act)
    try:
        yield
    finally:
        _watching.pop()
        os.fsync = _fsync


@contextmanager
def at_instant(n: int, act: Callable[[], None]) -> Iterator[None]:
    """Within the block, `act` at the n-th instant, from 1."""
    left = n

    def count(path: Path) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    with watching(count):
        yield


def full_at(n: int, write: Callable[..., object], *arguments: Any) -> bool:
    """Whether `write(*arguments)` got to its n-th instant, which finds the disk full.

    What it then does about that is its own: an error passes through here.
    """
    came = False

    def fail() -> None:
        nonlocal came
        came = True
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with at_instant(n, fail):
        write(*arguments)
    return came


def killed_at(n: int, folder: Path, write: Callable[..., object], *arguments: Any) -> bool:
    """Whether `write(*arguments)`, in another process, was killed at its n-th instant.

    With the power: what it has written in `folder` and not synced is lost by half. False when it
    came to its end before.
    """
    process = Fork(target=_die, args=(n, folder, write, *arguments))
    process.start()
    process.join()
    status = process.exitcode
    process.close()
    assert status in (0, -signal.SIGKILL)
    return status != 0


def _die(n: int, folder: Path, write: Callable[..., object], *arguments: Any) -> None:
    sys.dont_write_bytecode = True
    before = {path.stat().st_ino for path in folder.rglob("*")}

    def cut_power() -> None:
        _watching.clear()
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_ino not in before | _synced:
                os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)

    with at_instant(n, cut_power):
        write(*arguments)
