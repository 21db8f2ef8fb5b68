"""The speed of a device in single precision, by which Table 2 estimates what training costs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from regard.machine.devices import wait_for

SIZE = {"cpu": 1024, "cuda": 4096}
"""Rows and columns of the matrices that are multiplied."""
PRODUCTS, LEAST_SECONDS = 5, 0.2
"""At least this many products are timed, and more until they have taken this many seconds."""


@cache
def single_precision_speed(device: torch.device) -> float:
    """Operations a second that the device sustains in a product of fp32 matrices; measured once.

    A CPU computes with the threads of this process. No product is rounded to a shorter format on
    the way, as TF32 would be. It is the speed of the fastest product within a fifth of a second, so
    that other work of the machine lowers it little.
    """
    size = SIZE.get(device.type, SIZE["cpu"])
    a, b = torch.ones(size, size, device=device), torch.ones(size, size, device=device)
    seconds: list[float] = []
    with _in_full_precision(), torch.no_grad():
        torch.mm(a, b)  # the first one also loads what it needs
        wait_for(device)
        while len(seconds) < PRODUCTS or sum(seconds) < LEAST_SECONDS:
            begin = time.perf_counter()
            torch.mm(a, b)
            wait_for(device)
            seconds.append(time.perf_counter() - begin)
    return 2 * size**3 / min(seconds)


@contextmanager
def _in_full_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
