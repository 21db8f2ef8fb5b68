"""End a program by a signal, and check that processes have ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """The output and the status of a program that was ended."""

    first: str
    """The first line of its standard output."""
    more: str
    """Its standard output after the first plus sign."""
    said: str
    """Its standard error."""
    status: int


def ended(program: str, signum: int) -> Ended:
    """Run a program that writes a line and then plus signs, one per line; end it after the first.

    SIGKILL is sent to the program alone; any other signal goes to its children too, as from a
    terminal.
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
    """Whether a process has ended; after its parent has ended, it may stay a zombie for a while."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def assert_gone(pids: list[int]) -> None:
    """Wait until all these processes have ended; fail after 30 seconds."""
    deadline = time.monotonic() + 30
    while not all(map(gone, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
