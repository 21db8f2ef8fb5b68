"""What the loops are made of: numbers in fp32 and bf16, the exponential, random bits."""

import hashlib
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

Function = TypeVar("Function", bound=Callable[..., object])
Numbers = NDArray[Any]
"""fp32, or bf16 as 16 bits without a sign; in signatures "float32" and "uint16"."""

# Sums may be made in any order, or they could not be made by vectors; NaN and infinity stay what
# they are.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


def loop_for(*signatures: str) -> Callable[[Function], Function]:
    """Compile a loop now, for arguments of these types; "{n}" in them stands for fp32 and bf16."""
    types = ("float32", "uint16")
    every = [s.replace("{n}", n) for s in signatures for n in (types if "{n}" in s else types[:1])]
    options: Any = {"nogil": True, "fastmath": _FAST, "error_model": "numpy"}

    def compile_now(function: Function) -> Function:
        loop: Any
        try:
            with _cache():
                loop = njit(every, cache=True, **options)(function)
        except Exception:  # what may be wrong with a cache is no matter: it goes without one
            loop = njit(every, **options)(function)
        return loop

    return compile_now


@cache
def _version() -> str:
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


@contextmanager
def _cache() -> Iterator[None]:
    """In here Numba keeps what it compiles in a folder for this version of all the loops.

    By itself it notices a change in the file of a loop, but not one in what the loop is made of.
    """
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regard"
    config: Any = numba.config
    before = config.CACHE_DIR  # what NUMBA_CACHE_DIR says
    config.CACHE_DIR = str(Path(before or own) / f"loops-{_version()}")
    try:
        yield
    finally:
        config.CACHE_DIR = before


def within(function: Function) -> Function:
    """What loops call: it becomes a part of them."""
    inner: Any = njit(fastmath=_FAST, error_model="numpy")(function)
    return inner


@within
def bits(number: f32) -> u32:
    """The 32 bits of an fp32 number."""
    return f32(number).view(u32)


@within
def from_bits(integer: u32) -> f32:
    """And the other way round."""
    return u32(integer).view(f32)


def read(number: Any) -> Any:
    """fp32 of a number in fp32 or bf16."""


@overload(read)
def _read(number: Any) -> Any:
    def bf16(number: Any) -> Any:
        return from_bits(u32(number) << u32(16))

    def fp32(number: Any) -> Any:
        return number

    return bf16 if number.bitwidth == 16 else fp32


def write(row: Any, place: int, number: Any) -> None:
    """Put an fp32 number there, rounded to the nearest if the row is of bf16."""


@overload(write)
def _write(row: Any, place: int, number: Any) -> Any:
    def bf16(row: Any, place: int, number: Any) -> None:
        whole = bits(number)
        row[place] = u16((whole + u32(0x7FFF) + ((whole >> u32(16)) & u32(1))) >> u32(16))

    def fp32(row: Any, place: int, number: Any) -> None:
        row[place] = number

    return bf16 if row.dtype.bitwidth == 16 else fp32


@within
def _ordered(integer: i32) -> i32:
    """Of the bits of a number, an integer that is the larger the larger it is; and back."""
    return i32(integer ^ ((integer >> i32(31)) & i32(0x7FFFFFFF)))


@within
def largest(row: Numbers) -> f32:
    """The largest number of a row, by integers: those are compared by vectors, floats are not.

    NaN is larger than all others, or less, by its sign.
    """
    found = i32(-(2**31))
    for j in range(len(row)):
        found = max(found, _ordered(i32(bits(read(row[j])))))
    return from_bits(u32(_ordered(found)))


@within
def exp(x: f32) -> f32:
    """e^x for x <= 0, with an error below (2 + |x|) 1e-7 of it; 0 where it is below 2^-125."""
    t = f32(x * f32(1.4426950408889634))
    whole = np.floor(f32(-125) if t < f32(-125) else t)
    f = f32(t - whole)
    p = f32(1.8775767e-3)  # 2^f for 0 <= f < 1
    p = p * f + f32(8.9893397e-3)
    p = p * f + f32(5.5826318e-2)
    p = p * f + f32(2.4015361e-1)
    p = p * f + f32(6.9315308e-1)
    p = p * f + f32(9.9999994e-1)
    return f32(0) if t < f32(-125) else p * from_bits(u32(i32(whole) + i32(127)) << u32(23))


@within
def keep(seed: int, row: int, threshold: int, factor: float, out: Numbers) -> None:
    """Dropout for each element of a row: `factor`, or 0 with a probability of threshold / 65536.

    They follow from the seed, the row and the place. `out` has an even length; 32 random bits
    decide of two elements, one of each half of it.
    """
    half = len(out) // 2
    first, second, others = u32(u32(row * half) + u32(seed)), u32(seed >> 32), out[half:]
    for j in range(half):
        # A counter and two keys, mixed until each bit depends on all.
        x = u32(first + u32(j))
        x = u32(u32(u32(x ^ (x >> u32(17))) * u32(0xED5AD4BB)) + second)
        x = u32(u32(x ^ (x >> u32(11))) * u32(0xAC4C1B51))
        x = u32(u32(x ^ (x >> u32(15))) * u32(0x31848BAB))
        x = u32(x ^ (x >> u32(14)))
        out[j] = factor if u32(x & u32(0xFFFF)) >= threshold else f32(0)
        others[j] = factor if u32(x >> u32(16)) >= threshold else f32(0)
