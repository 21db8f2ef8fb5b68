"""Loops for inference in 8 bits: they round to unsigned integers, and scale products."""

import numpy as np
from numpy import float32 as f32
from numpy import uint32 as u32

from regard.arithmetic.loops.numbers import Numbers, bits, from_bits, loop_for

_TO_BYTE = f32(2**23 + 2**22 + 128)  # the last byte of the bits of n + _TO_BYTE is n + 128


@loop_for("void(float32[:, ::1], uint8[:, ::1], float32[::1])")
def round_unsigned_rows(x: Numbers, out: Numbers, scale: Numbers) -> None:
    """Write x / scale + 128 as integers; the largest |x| / scale of each row becomes 127.

    This determines the scale of the row, which is written to `scale`.
    """
    rows, columns = x.shape
    for r in range(rows):
        row, out_row = x[r], out[r]
        largest = u32(0)
        for j in range(columns):
            largest = max(largest, u32(bits(row[j]) & u32(0x7FFFFFFF)))  # its absolute value
        scale[r] = from_bits(largest) * f32(1 / 127) + f32(1e-30)
        factor = f32(1) / scale[r]
        for j in range(columns):
            out_row[j] = np.uint8(bits(row[j] * factor + _TO_BYTE))


@loop_for("void(float32[:, ::1], float32[::1], float32[::1], boolean)")
def scale_in_place(y: Numbers, scale: Numbers, bias: Numbers, relu: bool) -> None:
    """Turn each y into y * scale + bias, with a scale for each row, then ReLU if `relu`."""
    rows, columns = y.shape
    lowest = f32(0) if relu else f32(-np.inf)
    for r in range(rows):
        row = y[r]
        for j in range(columns):
            number = row[j] * scale[r] + bias[j]
            row[j] = lowest if number < lowest else number
