"""Several processes that train together, as torchrun would start them, but from what is loaded."""

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from run.killing import Fork

SECONDS = 120
_stores = []  # each lives, as torchrun's does, however its processes end


def started(count: int, work: Callable[..., object], *arguments: Any, stderr: Path) -> list[Any]:
    """`work(*arguments)` in `count` processes; what they say goes into a file."""
    seconds = timedelta(seconds=SECONDS)
    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=seconds, wait_for_workers=False)
    _stores.append(store)
    processes = [
        Fork(target=_be, args=(rank, count, store.port, stderr, work, arguments))
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    return processes


def ended(processes: list[Any]) -> list[int]:
    """Their exit statuses, by rank; fails where they hang."""
    try:
        for process in processes:
            process.join(SECONDS)
        return [process.exitcode for process in processes]
    finally:
        for process in processes:
            process.kill()


def finished(count: int, work: Callable[..., object], *arguments: Any, stderr: Path) -> None:
    """All do their work to the end."""
    assert ended(started(count, work, *arguments, stderr=stderr)) == [0] * count, stderr.read_text()


def _be(
    rank: int,
    count: int,
    port: int,
    stderr: Path,
    work: Callable[..., object],
    arguments: tuple[Any, ...],
) -> None:
    import torch

    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    with stderr.open("a") as file:
        os.dup2(file.fileno(), 2)
    sys.stdout = sys.stderr
    work(*arguments)
