"""Another Python process, which this one speaks to through pipes."""

import os
import signal
import subprocess
import sys
from typing import BinaryIO


def started(program: str, **environment: str) -> subprocess.Popen[bytes]:
    """Run a program; signals that ask a command to leave are for this process to obey.

    Raises OSError where there can be no more processes.
    """
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})  # inherited
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept)


def pipes() -> tuple[BinaryIO, BinaryIO]:
    """In a process that was started so: what it is asked through, and what it answers through.

    What a library prints is no answer, and goes to standard error from here on.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sys.stdin.buffer, answers
