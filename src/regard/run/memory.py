"""How much memory of a device there is, and how much was in use at once."""

import ctypes
import os
import resource
from contextlib import suppress
from pathlib import Path

import torch

CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """What each process on this host may still take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = _line("/proc/meminfo", "MemAvailable") or physical
    with suppress(OSError, ValueError):  # a container's own bound, or "max"
        free = min(free, int((CGROUP / "memory.max").read_text()) - _kept_by_container())
    return max(0, free) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def restart_peak(device: torch.device) -> int:
    """Forget the peak, and count it from what is in use now; returns those bytes."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError, AttributeError):  # what malloc keeps would be used again unseen
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes(device)


def peak_bytes(device: torch.device) -> int:
    """The most that was in use at once; on a CPU, resident memory of the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    most = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _line("/proc/self/status", "VmHWM") or most


def _kept_by_container() -> int:
    """Bytes of a container that no process will get: all in use but what files are cached in."""
    used = int((CGROUP / "memory.current").read_text())
    counts = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
    return used - int(counts.get("inactive_file", 0))


def _line(path: str, key: str) -> int | None:
    """The bytes that a line such as "VmHWM:   1234 kB" tells."""
    with suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(f"{key}:"):
                return 1024 * int(line.split()[1])
    return None
