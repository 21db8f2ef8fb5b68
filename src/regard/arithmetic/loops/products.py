"""The product of a few rows and a matrix of weights in fp32, in bf16 or in 8-bit integers."""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload
from numpy import float32 as f32

from regard.arithmetic.loops.int8 import round_unsigned_rows
from regard.arithmetic.loops.integers import multiply, packed_size
from regard.arithmetic.loops.numbers import Numbers, read, within


@within
def _four_rows(x: Numbers, matrix: Numbers, y: Numbers) -> None:
    """Add x W^T to y for four rows of x; `matrix` is W^T, and each of its weights is read once."""
    y0, y1, y2, y3 = y[0], y[1], y[2], y[3]
    whole = len(matrix) - len(matrix) % 4
    for k in range(0, whole, 4):
        w0, w1, w2, w3 = matrix[k], matrix[k + 1], matrix[k + 2], matrix[k + 3]
        a0, a1, a2, a3 = x[0, k], x[0, k + 1], x[0, k + 2], x[0, k + 3]
        b0, b1, b2, b3 = x[1, k], x[1, k + 1], x[1, k + 2], x[1, k + 3]
        c0, c1, c2, c3 = x[2, k], x[2, k + 1], x[2, k + 2], x[2, k + 3]
        d0, d1, d2, d3 = x[3, k], x[3, k + 1], x[3, k + 2], x[3, k + 3]
        for j in range(matrix.shape[1]):
            v0, v1, v2, v3 = read(w0[j]), read(w1[j]), read(w2[j]), read(w3[j])
            y0[j] += a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3
            y1[j] += b0 * v0 + b1 * v1 + b2 * v2 + b3 * v3
            y2[j] += c0 * v0 + c1 * v1 + c2 * v2 + c3 * v3
            y3[j] += d0 * v0 + d1 * v1 + d2 * v2 + d3 * v3
    for k in range(whole, len(matrix)):
        w0 = matrix[k]
        for j in range(matrix.shape[1]):
            v0 = read(w0[j])
            y0[j] += x[0, k] * v0
            y1[j] += x[1, k] * v0
            y2[j] += x[2, k] * v0
            y3[j] += x[3, k] * v0


@within
def _one_row(x: Numbers, matrix: Numbers, y: Numbers) -> None:
    """Add x W^T to y for one row x; `matrix` is W^T."""
    whole = len(matrix) - len(matrix) % 4
    for k in range(0, whole, 4):
        w0, w1, w2, w3 = matrix[k], matrix[k + 1], matrix[k + 2], matrix[k + 3]
        a0, a1, a2, a3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        for j in range(matrix.shape[1]):
            y[j] += a0 * read(w0[j]) + a1 * read(w1[j]) + a2 * read(w2[j]) + a3 * read(w3[j])
    for k in range(whole, len(matrix)):
        row, number = matrix[k], x[k]
        for j in range(matrix.shape[1]):
            y[j] += number * read(row[j])


@within
def _add_products(x: Numbers, matrix: Numbers, y: Numbers) -> None:
    """Add x W^T to y, [rows, outputs]; `matrix` is W^T."""
    fours = len(x) - len(x) % 4
    for r in range(0, fours, 4):
        _four_rows(x[r : r + 4], matrix, y[r : r + 4])
    for r in range(fours, len(x)):
        _one_row(x[r], matrix, y[r])


def apply_layer(x: Any, weights: Any, numbers: Any, y: Any) -> Any:
    """Write (x W^T) * scale + b to y, [rows, outputs]; return the number of elements of W.

    W is the first matrix in `weights`. `numbers` begins with the scale and b, both [outputs]. If W
    is arranged by `integers.pack`, each row of x is rounded to 8 bits. Only compiled functions can
    call `apply_layer`; the call goes to the function that `_for_weights` returns.
    """


@overload(apply_layer)
def _for_weights(x: Any, weights: Any, numbers: Any, y: Any) -> Any:
    def rounded(x: Any, weights: Any, numbers: Any, y: Any) -> Any:
        outputs, units = y.shape[1], np.empty(len(x), np.float32)
        states = np.zeros(((len(x) + 3) // 4 * 4, (x.shape[1] + 3) // 4 * 4), np.uint8)
        round_unsigned_rows(x, states, units)
        multiply(states, weights, units, numbers[:outputs], numbers[outputs : 2 * outputs], y)
        return packed_size(x.shape[1], outputs)

    def usual(x: Any, weights: Any, numbers: Any, y: Any) -> Any:
        outputs = y.shape[1]
        size, scale, bias = x.shape[1] * outputs, numbers[:outputs], numbers[outputs : 2 * outputs]
        y[:] = f32(0)
        _add_products(x, weights[:size].reshape(x.shape[1], outputs), y)
        for r in range(len(y)):
            row = y[r]
            for j in range(outputs):
                row[j] = row[j] * scale[j] + bias[j]
        return size

    return rounded if weights.dtype == types.int32 else usual
