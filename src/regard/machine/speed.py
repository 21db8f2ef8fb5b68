"""The speed of a device in single precision, from which Table 2 estimates the cost of training."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

import torch

from regard.machine.devices import free_memory, is_out_of_memory, wait_for
from regard.machine.threads import computing_with

SIZE = {"cpu": 1024, "cuda": 4096}
"""The number of rows, and of columns, of the matrices that are multiplied, by type of device."""
LEAST_SIZE = 256
"""If the memory is too small, the number of rows and columns is halved, but not below this."""
PRODUCTS, LEAST_SECONDS = 5, 0.2
"""At least this many products are timed, and they take at least this many seconds together."""


@cache
def single_precision_speed(device: torch.device, threads: int = 0) -> float:
    """The operations per second of the device in a product of fp32 matrices; measured once.

    A multiplication and an addition are two operations. A CPU computes with `threads` threads; 0
    means the threads of this process. No number is rounded to a shorter format, such as TF32. The
    result is the speed of the fastest of several products, so that other work of the machine
    changes the result little. With too little memory, the matrices are smaller.
    """
    size = SIZE.get(device.type, SIZE["cpu"])
    while True:
        try:
            return _speed(device, size, threads)
        except (MemoryError, RuntimeError) as error:
            if size <= LEAST_SIZE or not is_out_of_memory(error):
                raise
        free_memory(device)
        size //= 2


def _speed(device: torch.device, size: int, threads: int) -> float:
    a, b = torch.ones(size, size, device=device), torch.ones(size, size, device=device)
    seconds: list[float] = []
    own = nullcontext() if threads == 0 else computing_with(threads)
    with _in_full_precision(), own, torch.no_grad():
        torch.mm(a, b)  # the first product is not timed, as it also loads libraries
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
