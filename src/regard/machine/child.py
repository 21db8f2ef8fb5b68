"""A second Python process, connected to this one by pipes."""

import os
import signal
import subprocess
import sys
from typing import BinaryIO


def started(program: str, **environment: str) -> subprocess.Popen[bytes]:
    """Run a Python program with extra environment variables.

    The child ignores SIGINT and SIGTERM: only this process reacts to them. Raises OSError if the
    system cannot start another process.
    """
    # A child inherits the set of blocked signals.
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def pipes() -> tuple[BinaryIO, BinaryIO]:
    """In a process begun by `started`: the pipe to read requests from and the pipe to answer on.

    From here on, standard output is redirected to standard error, so that text printed by a library
    does not mix with the answers.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sys.stdin.buffer, answers
