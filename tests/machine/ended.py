"""Ending a program, and whether processes have ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """What there is to tell of a program that was ended."""

    first: str
    """The first line that it wrote."""
    more: str
    """What else it wrote after the first plus sign."""
    said: str
    """On standard error."""
    status: int


def ended(program: str, signum: int) -> Ended:
    """End a program, which writes a line, then plus signs on lines of their own.

    SIGKILL is sent to it alone; another signal, as from a terminal, to its children too.
    """
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        first = process.stdout.readline()
        assert process.stdout.readline() == "+\n"
        if signum == signal.SIGKILL:
            process.kill()
        else:
            os.killpg(process.pid, signum)
        more, said = process.communicate()
    return Ended(first, more, said, process.returncode)


def gone(pid: int) -> bool:
    """Whether a process has ended; without its parent it may be listed for a while as a zombie."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 30
    while not all(map(gone, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
