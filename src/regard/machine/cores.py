"""How many processor cores this process may use, and how many processes work together."""

import math
import os
from contextlib import suppress
from pathlib import Path

_CONTROL = Path("/sys/fs/cgroup")
"""The folder in which Linux shows a container the limits of its control group."""


def usable_cores() -> int:
    """The number of cores that this process may use, at most what its container allows.

    A container's limit of 2.5 cores, for example, counts as 3 cores.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return math.ceil(min(cores, _share()))


def started_together() -> int:
    """The number of processes that torchrun started together with this one, this one included.

    Without torchrun, this is 1.
    """
    return int(os.environ.get("WORLD_SIZE") or 1)


def _share() -> float:
    """How many cores the control group allows on average, such as 2.5; inf without a limit."""
    with suppress(OSError, ValueError):
        quota, period = (_CONTROL / "cpu.max").read_text().split()  # version 2 of control groups
        return float(quota) / float(period) if quota != "max" else math.inf
    with suppress(OSError, ValueError):
        each = ((_CONTROL / f"cpu/cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        quota_1, period_1 = map(float, each)
        return quota_1 / period_1 if quota_1 > 0 else math.inf
    return math.inf
