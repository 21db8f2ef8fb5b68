"""The memory of a device: its size, how much of it is free, and the peak of its use."""

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


class _Kind(NamedTuple):
    """Names in a version of Linux control groups, which limit containers and cluster jobs.

    `folder` is the folder of the groups in CGROUPS. In the folder of a group, `bound` and `used`
    are files, and `cached` is a line of the file memory.stat.
    """

    folder: str
    bound: str
    used: str
    cached: str


_V1 = _Kind("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _Kind("", "memory.max", "memory.current", "inactive_file")


def all_bytes(device: torch.device) -> int:
    """The size of the device's memory, in bytes.

    On a CPU, the result is at most the lowest limit of this process's control groups.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *(bound for bound, _ in _bounds())])


def free_bytes(device: torch.device) -> int:
    """The bytes of memory that this process may still take.

    On a CPU, each process of torchrun on this host may take an equal part of the free memory.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = _line("/proc/meminfo", "MemAvailable") or all_bytes(device)
    free = min([free, *(bound - used for bound, used in _bounds())])
    return max(0, free) // int(os.environ.get("LOCAL_WORLD_SIZE") or 1)


def give_back_memory() -> None:
    """Return to the system the memory that malloc keeps for reuse; only glibc can do this."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def restart_peak(device: torch.device) -> int:
    """Reset the peak of memory use to the present use, if possible; return the peak in bytes."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        give_back_memory()  # otherwise, reusing memory that malloc keeps would not raise the peak
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes(device)


def peak_bytes(device: torch.device) -> int:
    """The peak, in bytes, since `restart_peak`; on a CPU, it is the peak of resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    most = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _line("/proc/self/status", "VmHWM") or most


def _bounds() -> Iterator[tuple[int, int]]:
    """The limit and the used bytes of each control group that this process belongs to.

    Inactive cached files do not count as used: the system frees them on demand.
    """
    for kind, group in _groups():
        with suppress(OSError, ValueError):  # the file is missing, or its content is "max"
            bound, used = (int((group / name).read_text()) for name in (kind.bound, kind.used))
            counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            yield bound, used - int(counts.get(kind.cached, 0))


def _groups() -> Iterator[tuple[_Kind, Path]]:
    with suppress(OSError):
        for line in MEMBERSHIP.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            kind = _V2 if number == "0" else _V1
            if kind is _V2 or "memory" in controllers.split(","):
                # In a container, `path` may be a path of the host: perhaps only its parents exist.
                within = Path(path.strip("/"))
                for part in (within, *within.parents):
                    yield kind, CGROUPS / kind.folder / part


def _line(path: str, key: str) -> int | None:
    """The bytes in a line such as "VmHWM:   1234 kB"; None if there is no such line."""
    with suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(f"{key}:"):
                return 1024 * int(line.split()[1])
    return None
