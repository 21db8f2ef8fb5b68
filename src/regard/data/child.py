"""Another Python process, which this one speaks to through pipes."""

import os
import signal
import subprocess
import sys


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
