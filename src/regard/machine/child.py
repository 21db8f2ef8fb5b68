"""A second Python process, connected to this one by pipes."""

import os
import subprocess
import sys
from typing import BinaryIO

from regard.machine.interrupt import signals_blocked


def started(program: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start a process that runs the Python code `program`, with extra environment variables.

    Standard input and output of the new process are pipes. SIGINT, SIGTERM and SIGHUP are blocked
    in the new process, so that only its parent reacts to them. Raises OSError if the system cannot
    start another process.
    """
    places = [place for place in sys.path if isinstance(place, str)]  # Python ignores all others
    with signals_blocked():
        return subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(places)},
        )


def pipes() -> tuple[BinaryIO, BinaryIO]:
    """In a process that `started` made, return the pipe of requests and the pipe for answers.

    Standard output is redirected to standard error, so that text printed by a library does not mix
    with the answers.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return sys.stdin.buffer, answers
