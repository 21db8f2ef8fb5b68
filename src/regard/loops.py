"""What PyTorch computes in several passes over a tensor in one: loops that Numba compiles.

Each works on the rows of NumPy arrays, on one core, and does not hold Python's lock. bf16, which
NumPy lacks, comes as the 16 bits of each number. Importing this compiles them, for some seconds the
first time on a machine; from then on they are loaded from a cache in a fraction of a second.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., object])
Numbers = NDArray[Any]  # fp32, or bf16 as 16 bits without sign

f32, i32, u16, u32, u8 = np.float32, np.int32, np.uint16, np.uint32, np.uint8

BLOCK = 128
"""Logits of which `summary` finds one maximum."""

# Sums may be made in any order, or they could not be made by vectors; NaN and infinity stay what
# they are.
_FAST = {"reassoc", "contract", "arcp", "nsz"}
_TO_BYTE = f32(2**23 + 2**22 + 128)  # n + this is held as an integer, whose last byte is n + 128


def _compiled(*signatures: str) -> Callable[[Function], Function]:
    options = {"nogil": True, "fastmath": _FAST, "error_model": "numpy"}

    def compile_now(function: Function) -> Function:
        try:
            return njit(list(signatures), cache=True, **options)(function)
        except RuntimeError:  # there is no folder to which the cache could be written
            return njit(list(signatures), **options)(function)

    return compile_now


def _within(function: Function) -> Function:
    """Of what other loops call: LLVM puts it there."""
    return njit(fastmath=_FAST, error_model="numpy")(function)


def _read(number: Any) -> Any:
    """fp32 of a number in fp32 or bf16."""


@overload(_read)
def _read_as(number: Any) -> Any:
    def bf16(number: Any) -> Any:
        return _number(u32(number) << u32(16))

    def fp32(number: Any) -> Any:
        return number

    return bf16 if number.bitwidth == 16 else fp32


def _write(row: Any, place: int, number: Any) -> None:
    """Put an fp32 number there, rounded to the nearest if the row is of bf16."""


@overload(_write)
def _write_as(row: Any, place: int, number: Any) -> Any:
    def bf16(row: Any, place: int, number: Any) -> None:
        bits = _bits(number)
        row[place] = u16((bits + u32(0x7FFF) + ((bits >> u32(16)) & u32(1))) >> u32(16))

    def fp32(row: Any, place: int, number: Any) -> None:
        row[place] = number

    return bf16 if row.dtype.bitwidth == 16 else fp32


@_within
def _bits(number: f32) -> u32:
    return f32(number).view(u32)


@_within
def _number(bits: u32) -> f32:
    return u32(bits).view(f32)


@_within
def _ordered(number: f32) -> i32:
    """An integer that is the larger the larger the number is, and back: largest of all is NaN.

    Numba finds the largest integer of a row by vectors, but the largest float one by one.
    """
    bits = i32(_bits(number))
    return i32(bits ^ ((bits >> i32(31)) & i32(0x7FFFFFFF)))


@_within
def _unordered(integer: i32) -> f32:
    return _number(u32(integer ^ ((integer >> i32(31)) & i32(0x7FFFFFFF))))


@_within
def _largest(row: Numbers) -> f32:
    largest = i32(-(2**31))
    for j in range(len(row)):
        largest = max(largest, _ordered(_read(row[j])))
    return _unordered(largest)


@_within
def _exp(x: f32) -> f32:
    """e^x for x <= 0, with an error below 3e-7 of it; 2^-126 where it would be less."""
    t = f32(x * f32(1.4426950408889634))
    t = f32(-126) if t < f32(-126) else t
    whole = np.floor(t)
    f = f32(t - whole)
    p = f32(1.8775767e-3)  # 2^f for 0 <= f < 1
    p = p * f + f32(8.9893397e-3)
    p = p * f + f32(5.5826318e-2)
    p = p * f + f32(2.4015361e-1)
    p = p * f + f32(6.9315308e-1)
    p = p * f + f32(9.9999994e-1)
    return p * _number(u32(i32(whole) + i32(127)) << u32(23))


@_within
def _log_sum_exp(row: Numbers, largest: f32) -> f32:
    """0 where nothing is possible."""
    powers = f32(0)
    for j in range(len(row)):
        powers += _exp(_read(row[j]) - largest)
    return f32(0) if largest == -np.inf else largest + np.log(powers)


@_within
def _is_among(token: int, never: Numbers) -> bool:
    for other in never:
        if token == other:
            return True
    return False


@_compiled("void(float32[:, ::1], uint8[:, ::1], float32[::1])")
def rounded(x: Numbers, out: Numbers, scale: Numbers) -> None:
    """x / scale + 128 as integers, where scale makes the largest of each row 127."""
    rows, columns = x.shape
    for r in range(rows):
        row, out_row = x[r], out[r]
        largest = u32(0)
        for j in range(columns):
            largest = max(largest, u32(_bits(row[j]) & u32(0x7FFFFFFF)))  # without its sign
        scale[r] = _number(largest) * f32(1 / 127) + f32(1e-30)
        factor = f32(1) / scale[r]
        for j in range(columns):
            out_row[j] = u8(_bits(row[j] * factor + _TO_BYTE))


@_compiled(
    *(
        f"void(float32[:, ::1], {n}[:, ::1], int64[::1], int64[:, ::1], int64[:, ::1], "
        "float32[:, ::1])"
        for n in ("float32", "uint16")
    )
)
def most_likely(
    live: Numbers, logits: Numbers, never: Numbers, parents: Numbers, tokens: Numbers, best: Numbers
) -> None:
    """Of each sentence the largest live + log softmax(logits), largest first, of equals the first.

    Tokens that `never` follow are left out. Where there are too few, -inf fills the places; where
    one logit is NaN, that does.
    """
    sentences, beams = live.shape
    columns, places = logits.shape[1], best.shape[1]
    maxima = np.empty((columns + BLOCK - 1) // BLOCK, np.float32)
    for s in range(sentences):
        parents[s], tokens[s], best[s] = 0, 0, -np.inf
        for beam in range(beams):
            own, row = live[s, beam], logits[s * beams + beam]
            if own == -np.inf:
                continue
            for block in range(len(maxima)):
                maxima[block] = _largest(row[block * BLOCK : (block + 1) * BLOCK])
            total = _log_sum_exp(row, _largest(maxima))
            if np.isnan(own + total):
                best[s] = np.nan
                break
            for block in range(len(maxima)):
                if own + (maxima[block] - total) <= best[s, -1]:
                    continue
                for token in range(block * BLOCK, min(columns, (block + 1) * BLOCK)):
                    log_p = own + (_read(row[token]) - total)
                    if log_p <= best[s, -1] or _is_among(token, never):
                        continue
                    place = places - 1
                    while place > 0 and log_p > best[s, place - 1]:
                        parents[s, place], tokens[s, place] = parents[s, place - 1], tokens[s, place - 1]
                        best[s, place] = best[s, place - 1]
                        place -= 1
                    parents[s, place], tokens[s, place], best[s, place] = beam, token, log_p


@_compiled(
    *(
        f"void({n}[:, ::1], {n}[:, ::1], {n}[::1], {n}[::1], float32, {n}[:, ::1])"
        for n in ("float32", "uint16")
    )
)
def add_norm(
    x: Numbers, y: Numbers, weight: Numbers, bias: Numbers, eps: f32, out: Numbers
) -> None:
    """LayerNorm(x + y), in fp32 within."""
    rows, columns = x.shape
    total = np.empty(columns, np.float32)
    for r in range(rows):
        x_row, y_row, out_row = x[r], y[r], out[r]
        sum_1, sum_2 = f32(0), f32(0)
        for j in range(columns):
            total[j] = _read(x_row[j]) + _read(y_row[j])
            sum_1 += total[j]
        mean = sum_1 / f32(columns)
        for j in range(columns):
            total[j] -= mean
            sum_2 += total[j] * total[j]
        factor = f32(1) / np.sqrt(sum_2 / f32(columns) + eps)
        for j in range(columns):
            _write(out_row, j, total[j] * factor * _read(weight[j]) + _read(bias[j]))


@_compiled("void(float32[:, ::1], float32[::1], float32[::1], boolean)")
def scaled(y: Numbers, scale: Numbers, bias: Numbers, relu: bool) -> None:
    """Turn each y into y * scale + bias, with a scale for each row; and that into max(0, that)."""
    rows, columns = y.shape
    lowest = f32(0) if relu else f32(-np.inf)
    for r in range(rows):
        row = y[r]
        for j in range(columns):
            number = row[j] * scale[r] + bias[j]
            row[j] = lowest if number < lowest else number


@_compiled(
    *(
        f"void({n}[:, :, :, ::1], float32[:, :, :, ::1], float32, {n}[:, :, :, ::1])"
        for n in ("float32", "uint16")
    )
)
def weights(scores: Numbers, bias: Numbers, factor: f32, out: Numbers) -> None:
    """softmax(scores * factor + bias); a bias of one row or one query is that of all."""
    rows, heads, queries, keys = scores.shape
    exps = np.empty(keys, np.float32)
    for r in range(rows):
        for h in range(heads):
            for q in range(queries):
                here, out_row = scores[r, h, q], out[r, h, q]
                own = bias[min(r, bias.shape[0] - 1), 0, min(q, bias.shape[2] - 1)]
                for k in range(keys):
                    exps[k] = _read(here[k]) * factor + own[k]
                largest = _largest(exps)
                total = f32(0)
                for k in range(keys):
                    exps[k] = _exp(exps[k] - largest)
                    total += exps[k]
                inverse = f32(1) / total
                for k in range(keys):
                    _write(out_row, k, exps[k] * inverse)
