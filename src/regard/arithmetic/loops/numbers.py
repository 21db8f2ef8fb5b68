"""Code that compiled loops share: numbers in fp32 and bf16, the exponential, random bits."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba import njit
from numba.extending import overload
from numpy import float32 as f32
from numpy import int32 as i32
from numpy import uint16 as u16
from numpy import uint32 as u32
from numpy.typing import NDArray

from regard.arithmetic.loops.folder import loops_folder

_log = logging.getLogger("regard.loops")
Function = TypeVar("Function", bound=Callable[..., object])
Numbers = NDArray[Any]
"""An array of numbers.

In the signature of a loop, "float32" stands for fp32, and "uint16" for the 16 bits of bf16.
"""

# These flags let the compiler sum in any order, and therefore use vector instructions. Flags that
# would let the compiler assume that no number is NaN or infinite are left out.
_FAST = {"reassoc", "contract", "arcp", "nsz"}
_OPTIONS: Any = {"fastmath": _FAST, "error_model": "numpy", "no_cfunc_wrapper": True}


def loop_for(signature: str) -> Callable[[Function], Function]:
    """A decorator that compiles a loop for this signature at once, before the loop is called.

    A loop whose signature has "{n}" is compiled twice: with fp32 and with bf16 in place of "{n}".
    """
    kinds = ("float32", "uint16") if "{n}" in signature else ("",)
    every = [signature.replace("{n}", kind) for kind in kinds]
    options: Any = {**_OPTIONS, "nogil": True}

    def compile_now(function: Function) -> Function:
        loop: Any
        try:
            with _cache():
                loop = njit(every, cache=True, **options)(function)
        except Exception:  # the cache cannot be used: compile without a cache
            loop = njit(every, **options)(function)
        return loop

    return compile_now


def loop_for_weights(signature: str) -> Callable[[Function], Callable[[str], Function]]:
    """A decorator for a loop whose weights can have several types: "{w}" in its signature.

    The decorator turns the loop into a function that takes the name of the type, such as "int8",
    and returns the compiled loop. The first call with a name compiles the loop for this type only,
    because a model has weights of one type.
    """

    def postpone(function: Function) -> Callable[[str], Function]:
        @cache
        def loop(weights: str) -> Function:
            return loop_for(signature.replace("{w}", weights))(function)

        return loop

    return postpone


@cache
def _version() -> str:
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


@contextmanager
def _cache() -> Iterator[None]:
    """A context in which Numba's cache is a folder named by a hash of all files of this package.

    If any of these files changes, all loops are compiled again. Numba itself compiles a loop again
    only if the loop's own file changes. It does not check the files of functions that a loop calls.
    """
    config: Any = numba.config
    # The user sets CACHE_DIR by NUMBA_CACHE_DIR, or in a file of Numba's settings; else it is "".
    before = config.CACHE_DIR
    folder = Path(before or loops_folder()) / f"loops-{_version()}"
    if not os.access(folder, os.R_OK):  # unlike Path.exists, os.access does not raise
        _say_once()
    config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


@cache
def _say_once() -> None:
    """Tell the user why a command takes longer the first time."""
    _log.warning("compiling loops for this machine: the first time, this takes up to a minute")


def within(function: Function) -> Function:
    """A decorator for a function that loops call; the function is compiled into these loops."""
    inner: Any = njit(**_OPTIONS)(function)
    return inner


def within_in_order(function: Function) -> Function:
    """`within`, but the compiler keeps each operation on numbers as it is written."""
    inner: Any = njit(**_OPTIONS | {"fastmath": False})(function)
    return inner


@within
def bits(number: f32) -> u32:
    """The 32 bits of an fp32 number."""
    return f32(number).view(u32)


@within
def from_bits(integer: u32) -> f32:
    """The fp32 number that has these 32 bits."""
    return u32(integer).view(f32)


def read(number: Any) -> Any:
    """The value, in fp32, of a number in fp32 or in bf16 (as 16 bits).

    Only compiled functions can call `read`; the call goes to the function that `_read` returns.
    """


@overload(read)
def _read(number: Any) -> Any:
    def bf16(number: Any) -> Any:
        return from_bits(u32(number) << u32(16))

    def fp32(number: Any) -> Any:
        return number

    return bf16 if number.bitwidth == 16 else fp32


def write(row: Any, place: int, number: Any) -> None:
    """Write an fp32 number to row[place]; if the row is in bf16, round to the nearest bf16 number.

    Only compiled functions can call `write`; the call goes to the function that `_write` returns.
    """


@overload(write)
def _write(row: Any, place: int, number: Any) -> Any:
    def bf16(row: Any, place: int, number: Any) -> None:
        whole = bits(number)
        row[place] = u16((whole + u32(0x7FFF) + ((whole >> u32(16)) & u32(1))) >> u32(16))

    def fp32(row: Any, place: int, number: Any) -> None:
        row[place] = number

    return bf16 if row.dtype.bitwidth == 16 else fp32


@within_in_order
def divide(x: float, y: float) -> f32:
    """x / y, rounded once.

    In other compiled functions, the compiler may replace x / y by x times the rounded 1 / y.
    """
    return f32(x) / f32(y)


@within
def _ordered(integer: i32) -> i32:
    """Map the bits of an fp32 number to an integer; a larger number gets a larger integer.

    The map is its own inverse: from the integer, `_ordered` returns the bits.
    """
    return i32(integer ^ ((integer >> i32(31)) & i32(0x7FFFFFFF)))


@within
def largest(row: Numbers) -> f32:
    """The largest number of a row, in fp32.

    Numbers are compared as integers, because vector instructions can do this. A NaN counts as
    larger than all numbers or, if its sign bit is set, as smaller than all numbers.
    """
    found = i32(-(2**31))
    for j in range(len(row)):
        found = max(found, _ordered(i32(bits(read(row[j])))))
    return from_bits(u32(_ordered(found)))


@within
def exp(x: f32) -> f32:
    """e^x for x <= 0, with a relative error below (2 + |x|) 1e-7; 0 where e^x is below 2^-125."""
    t = f32(x * f32(1.4426950408889634))
    whole = np.floor(f32(-125) if t < f32(-125) else t)
    f = f32(t - whole)
    p = f32(1.8775767e-3)  # the polynomial p becomes 2^f, for 0 <= f < 1
    p = p * f + f32(8.9893397e-3)
    p = p * f + f32(5.5826318e-2)
    p = p * f + f32(2.4015361e-1)
    p = p * f + f32(6.9315308e-1)
    p = p * f + f32(9.9999994e-1)
    return f32(0) if t < f32(-125) else p * from_bits(u32(i32(whole) + i32(127)) << u32(23))


@within
def keep(seed: int, row: int, threshold: int, factor: float, out: Numbers) -> None:
    """Fill `out` with the dropout mask of a row: 0 with a probability of threshold / 65536.

    All other elements are `factor`. The seed, the number of the row and the index in the row
    determine each element. The length of `out` is even, because the same 32 random bits decide two
    elements, one in each half of `out`.
    """
    half = len(out) // 2
    first, second, others = u32(u32(row * half) + u32(seed)), u32(seed >> 32), out[half:]
    for j in range(half):
        # Three numbers are mixed: row * half + j, and the lower and the upper 32 bits of the seed.
        # In the end, each bit of x depends on all bits of the three numbers.
        x = u32(first + u32(j))
        x = u32(u32(u32(x ^ (x >> u32(17))) * u32(0xED5AD4BB)) + second)
        x = u32(u32(x ^ (x >> u32(11))) * u32(0xAC4C1B51))
        x = u32(u32(x ^ (x >> u32(15))) * u32(0x31848BAB))
        x = u32(x ^ (x >> u32(14)))
        out[j] = factor if u32(x & u32(0xFFFF)) >= threshold else f32(0)
        others[j] = factor if u32(x >> u32(16)) >= threshold else f32(0)
