"""The product of rows and a matrix of weights in fp32, in bf16 or in 8-bit integers.

A row has the same result in any batch: sums of integers are exact, and other products are added in
the order of the inputs, which does not depend on the other rows.
"""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload
from numpy import float32 as f32
from numpy.typing import NDArray

from regard.arithmetic.loops.int8 import round_unsigned_rows
from regard.arithmetic.loops.integers import multiply, packed_size
from regard.arithmetic.loops.numbers import Numbers, within
from regard.arithmetic.loops.vectors import LANES, load, multiply_add, store, vector_of

_BLOCK = 2 * LANES
"""The number of outputs in a block. For each row of x, a block has two vectors of sums."""
_ROWS = 4
"""The number of rows of x that `_four_rows` multiplies by a block of weights."""


def in_blocks(weight: NDArray[Any]) -> NDArray[Any]:
    """Arrange a matrix, [inputs, outputs], for `apply_layer`.

    Outputs are padded with zeros to whole blocks of `_BLOCK` outputs. Blocks follow one another.
    Each block has the weights of the first input, then those of the second input, and so on.
    """
    inputs, outputs = weight.shape
    whole = outputs // _BLOCK * _BLOCK
    blocks = np.zeros((-(-outputs // _BLOCK), inputs, _BLOCK), weight.dtype)
    blocks[: whole // _BLOCK] = weight[:, :whole].reshape(inputs, -1, _BLOCK).swapaxes(0, 1)
    blocks[whole // _BLOCK :, :, : outputs - whole] = weight[:, whole:]
    return blocks.ravel()


@within
def _four_rows(
    x: Numbers, weights: Numbers, scale: Numbers, bias: Numbers, y: Numbers, place: int
) -> None:
    """Write (x W^T) * scale + bias to y, for four rows and a block of outputs.

    The outputs are written from column `place` of y on. `scale` and `bias` have the block's numbers
    only.
    """
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    a0 = b0 = a1 = b1 = a2 = b2 = a3 = b3 = vector_of(f32(0))
    for k in range(len(x0)):
        u, v = load(weights, k * _BLOCK), load(weights, k * _BLOCK + LANES)
        r0, r1, r2, r3 = vector_of(x0[k]), vector_of(x1[k]), vector_of(x2[k]), vector_of(x3[k])
        a0, b0 = multiply_add(r0, u, a0), multiply_add(r0, v, b0)
        a1, b1 = multiply_add(r1, u, a1), multiply_add(r1, v, b1)
        a2, b2 = multiply_add(r2, u, a2), multiply_add(r2, v, b2)
        a3, b3 = multiply_add(r3, u, a3), multiply_add(r3, v, b3)
    s, t, c, d = load(scale, 0), load(scale, LANES), load(bias, 0), load(bias, LANES)
    _store_block(y[0], place, multiply_add(a0, s, c), multiply_add(b0, t, d))
    _store_block(y[1], place, multiply_add(a1, s, c), multiply_add(b1, t, d))
    _store_block(y[2], place, multiply_add(a2, s, c), multiply_add(b2, t, d))
    _store_block(y[3], place, multiply_add(a3, s, c), multiply_add(b3, t, d))


@within
def _store_block(row: Numbers, place: int, first: Any, second: Any) -> None:
    store(row, place, first)
    store(row, place + LANES, second)


@within
def _multiply(x: Numbers, weights: Numbers, numbers: Numbers, y: Numbers) -> int:
    """Write (x W^T) * scale + b to y, [rows, outputs]; return the number of elements of W.

    `weights` begins with W, as `in_blocks` arranges it; `numbers` begins with the scale and b.
    """
    inputs, outputs, whole = x.shape[1], y.shape[1], len(x) // _ROWS * _ROWS
    scale, bias, size = numbers[:outputs], numbers[outputs : 2 * outputs], inputs * _BLOCK
    last, part = np.zeros((_ROWS, inputs), np.float32), np.empty((_ROWS, _BLOCK), np.float32)
    scales, biases = np.zeros(_BLOCK, np.float32), np.zeros(_BLOCK, np.float32)
    for r in range(whole, len(x)):
        for k in range(inputs):
            last[r - whole, k] = x[r, k]
    for first in range(0, outputs, _BLOCK):
        of_block = weights[first * inputs : first * inputs + size]
        width = min(_BLOCK, outputs - first)
        for j in range(width):
            scales[j], biases[j] = scale[first + j], bias[first + j]
        for row in range(0, whole, _ROWS):  # the block stays in the cache for all rows
            if width == _BLOCK:
                _four_rows(x[row:], of_block, scales, biases, y[row:], first)
            else:
                _four_rows(x[row:], of_block, scales, biases, part, 0)
                _copy_rows(part, y[row : row + _ROWS], first, width)
        if whole < len(x):
            _four_rows(last, of_block, scales, biases, part, 0)
            _copy_rows(part, y[whole:], first, width)
    return (outputs + _BLOCK - 1) // _BLOCK * size


@within
def _copy_rows(part: Numbers, y: Numbers, first: int, width: int) -> None:
    """Copy the first `width` columns of `part` to y, from column `first` on."""
    for r in range(len(y)):
        for j in range(width):
            y[r, first + j] = part[r, j]


def apply_layer(x: Any, weights: Any, numbers: Any, y: Any) -> Any:
    """Write (x W^T) * scale + b to y, [rows, outputs]; return the number of elements of W.

    W is the first matrix in `weights`. `numbers` begins with the scale and b, both [outputs]. If W
    is arranged by `integers.pack`, each row of x is rounded to 8 bits; otherwise W is arranged by
    `in_blocks`. Only compiled functions can call `apply_layer`; the call goes to the function that
    `_for_weights` returns.
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
        return _multiply(x, weights, numbers, y)

    return rounded if weights.dtype == types.int32 else usual
