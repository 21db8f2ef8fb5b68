"""A worker for side_by_side.py, in any environment: standard library only.

A worker is a process that is asked on stdin and answers on stdout, one JSON object per line.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
Turn = Callable[[Answer], Answer]


def serve(start: Callable[[], tuple[Answer, Turn]]) -> None:
    """Answer requests until stdin ends.

    `start` prepares everything and gives (about, turn): `about` has at least "name", "version" and
    "precision"; `turn` answers one request, {"round": n}, with at least "seconds".
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints goes to stderr
    about, turn = start()
    print(json.dumps({"ready": True} | about), file=answers)
    for line in sys.stdin:
        answer = turn(json.loads(line))
        print(json.dumps(answer | {"peak_memory": peak_memory()}), file=answers)


def peak_memory() -> int:
    """The most bytes that this process had in memory at once; raises OSError if unknown."""
    # ru_maxrss is no use: it begins with the memory of the parent when it started this process.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmHWM in /proc/self/status")
