"""Loops for products in 8 bits: they round matrices to integers, and scale products.

The integers are signed in training, and unsigned in inference.
"""

import numpy as np
from numpy import float32 as f32
from numpy import int8 as i8
from numpy import uint32 as u32

from regard.arithmetic.loops.numbers import Numbers, bits, from_bits, loop_for, read, write

# If one of these constants is added in fp32 to a number from -127 to 127, the number is rounded to
# an integer n. With _TO_SIGNED, the lowest 8 bits of the sum are the signed integer n. With
# _TO_UNSIGNED, they are the unsigned integer n + 128.
_TO_SIGNED = f32(2**23 + 2**22)
_TO_UNSIGNED = f32(2**23 + 2**22 + 128)


@loop_for("void({n}[:, ::1], float32[::1], int8[:, ::1], float32[::1])")
def round_signed(x: Numbers, factors: Numbers, out: Numbers, scale: Numbers) -> None:
    """Write x[i, j] * factors[j] / scale[i], rounded to integers from -127 to 127, to `out`.

    The loop chooses each row's scale, such that the largest absolute value in the row becomes 127,
    and writes the scales to `scale`.
    """
    columns = x.shape[1]
    product = np.empty(columns, np.float32)
    for r in range(len(x)):
        row, out_row = x[r], out[r]
        largest = u32(0)
        for j in range(columns):
            product[j] = read(row[j]) * factors[j]
            # The bits of |product[j]| as an integer: a larger absolute value has a larger integer.
            largest = max(largest, u32(bits(product[j]) & u32(0x7FFFFFFF)))
        scale[r] = from_bits(largest) * f32(1 / 127) + f32(1e-30)
        inverse = f32(1) / scale[r]
        for j in range(columns):
            out_row[j] = i8(bits(product[j] * inverse + _TO_SIGNED))


@loop_for("void(int32[:, ::1], float32[::1], float32[::1], float32[::1], boolean, {n}[:, ::1])")
def scale_sums(
    y: Numbers, scale: Numbers, factors: Numbers, bias: Numbers, relu: bool, out: Numbers
) -> None:
    """Write y[i, j] * scale[i] * factors[j] + bias[j] to `out`.

    If `relu` is True, 0 is written in place of a negative result.
    """
    for r in range(len(y)):
        row, out_row, of_row = y[r], out[r], scale[r]
        if relu:
            for j in range(len(row)):
                number = f32(row[j]) * of_row * factors[j] + bias[j]
                # `number` is multiplied by 0 or 1, because `if` would prevent vector instructions.
                write(out_row, j, number * f32(number > f32(0)))
        else:
            for j in range(len(row)):
                write(out_row, j, f32(row[j]) * of_row * factors[j] + bias[j])


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
            out_row[j] = np.uint8(bits(row[j] * factor + _TO_UNSIGNED))


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
