"""Loops for inference in 8 bits: they round to unsigned integers, and scale products."""

import numpy as np
from numpy import float32 as f32
from numpy import uint32 as u32

from regard.arithmetic.loops.numbers import Numbers, bits, from_bits, loop_for

# If _TO_BYTE is added in fp32 to a number from -127 to 127, the number is rounded to an integer n.
# The lowest 8 of the 32 bits of the sum are n + 128, as an unsigned integer.
_TO_BYTE = f32(2**23 + 2**22 + 128)


@loop_for("void(float32[:, ::1], uint8[:, ::1], float32[::1])")
def round_unsigned_rows(x: Numbers, out: Numbers, scale: Numbers) -> None:
    """Write x[i, j] / scale[i] + 128, rounded to integers from 1 to 255, to `out`.

    The loop chooses each row's scale, such that the largest |x[i, j]| / scale[i] of the row is 127,
    and writes the scales to `scale`.
    """
    rows, columns = x.shape
    for r in range(rows):
        row, out_row = x[r], out[r]
        largest = u32(0)
        for j in range(columns):
            # The bits of |row[j]| as an integer: a larger absolute value has a larger integer.
            largest = max(largest, u32(bits(row[j]) & u32(0x7FFFFFFF)))
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
