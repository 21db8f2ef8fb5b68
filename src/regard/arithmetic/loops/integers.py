"""Functions that multiply 8-bit integers in compiled loops, by vector instructions of x86.

The VNNI instruction updates a vector of sums in int32: to each sum, it adds four products of an
unsigned and a signed 8-bit integer. Processors with AVX2 but without VNNI need three instructions
for this. Numba lacks these instructions, so this module defines a type for a vector of sums, and
functions that loops call to use the instructions. On processors with neither AVX2 nor VNNI,
`loops.products` multiplies 8-bit weights in fp32.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import models, register_model
from numpy import float32 as f32
from numpy.typing import NDArray

from regard.arithmetic.layouts import largest_weight
from regard.arithmetic.loops.numbers import Numbers, within
from regard.arithmetic.loops.vectors import FEATURES, address, alike, call, intrinsic

_HAS = {"+avx512vnni": 16, "+avxvnni": 8}
_BY_VNNI = next((lanes for feature, lanes in _HAS.items() if feature in FEATURES), 0)
# AVX2 adds pairs of products in signed 16 bits, which can hold 2 x 255 x 64 and not 2 x 255 x 127.
_BY_AVX2 = 8 if not _BY_VNNI and "+avx2" in FEATURES and largest_weight() <= 64 else 0
_LANES = _BY_VNNI or _BY_AVX2
"""The number of sums in a vector; 0 for a processor without the instructions."""
ROUNDED = "int32" if _LANES else "int8"
"""The element type of matrices of 8-bit weights: "int32" if `pack` arranges them, else "int8"."""
_BLOCK = 2 * _LANES
"""The number of outputs in a block. For each row of x, a block has two vectors of sums."""
_ROWS = 4
"""The number of rows of x that `_four_rows` multiplies by a block of weights."""

_INT = ir.IntType(32)
_VECTOR = ir.VectorType(_INT, _LANES or 1)
_SHORTS = ir.VectorType(ir.IntType(16), 2 * _LANES or 1)
_BYTES = ir.VectorType(ir.IntType(8), 4 * _LANES or 1)


def pack(weight: NDArray[np.int8]) -> NDArray[np.int32]:
    """Arrange a matrix, [inputs, outputs], for `multiply`: four weights become one 32-bit integer.

    Inputs are padded with zeros to groups of four, and outputs to whole blocks. Blocks of outputs
    follow one another. Each block begins with the start values of its sums; then come the weights
    of its groups of inputs, one group after another. A sum starts at -128 times the sum of its
    weights, because 128 is added to the states to make them unsigned.
    """
    inputs, outputs = weight.shape
    groups, blocks = -(-inputs // 4), -(-outputs // _BLOCK)
    padded = np.zeros((4 * groups, blocks * _BLOCK), np.int8)
    padded[:inputs, :outputs] = weight
    fours = padded.reshape(groups, 4, blocks, _BLOCK).transpose(2, 0, 3, 1)
    numbers = np.ascontiguousarray(fours).view(np.int32)[..., 0]
    starts = (-128 * padded.sum(0, dtype=np.int32)).reshape(blocks, 1, _BLOCK)
    return np.concatenate([starts, numbers], axis=1).ravel()


@within
def packed_size(inputs: int, outputs: int) -> int:
    """The number of elements of a matrix that `pack` has arranged."""
    return (1 + (inputs + 3) // 4) * ((outputs + _BLOCK - 1) // _BLOCK) * _BLOCK


@within
def multiply(
    x: Numbers, weights: Numbers, factors: Numbers, scale: Numbers, bias: Numbers, y: Numbers
) -> None:
    """Write s W^T * factors * scale + bias to y, [rows, outputs]; s and W have 8 bits.

    `x`, [rows or more, inputs], holds the numbers s + 128, which are not negative. Both dimensions
    of `x` are multiples of 4. `weights` begins with W, as `pack` arranges it. There is a factor for
    each row, and a scale and a bias for each output. The sums are exact.
    """
    outputs, fours = y.shape[1], x.view(np.int32)
    size = (1 + fours.shape[1]) * _BLOCK
    sums = np.empty((_ROWS, _BLOCK), np.int32)
    for block in range((outputs + _BLOCK - 1) // _BLOCK):
        of_block, first = weights[block * size : (block + 1) * size], block * _BLOCK
        last = min(first + _BLOCK, outputs)
        scales, biases = scale[first:last], bias[first:last]
        for row in range(0, len(x), _ROWS):  # the block stays in the cache for all rows
            _four_rows(fours[row : row + _ROWS], of_block, sums)
            for r in range(row, min(row + _ROWS, len(y))):
                of_row, out = sums[r - row], y[r, first:last]
                for j in range(len(out)):
                    out[j] = f32(of_row[j]) * scales[j] * factors[r] + biases[j]


@within
def _four_rows(x: Numbers, weights: Numbers, y: Numbers) -> None:
    """Multiply four rows of x by a block of weights; write the sums to y, [4, outputs].

    Each element of `x` holds four inputs. The elements of `weights` are the start values of the
    sums, then groups of four weights.
    """
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    a0, b0 = _load(weights, 0), _load(weights, _LANES)
    a1, a2, a3, b1, b2, b3 = a0, a0, a0, b0, b0, b0
    for k in range(len(x0)):
        place = (k + 1) * _BLOCK
        u, v = _load(weights, place), _load(weights, place + _LANES)
        a0, b0 = _add(a0, x0[k], u), _add(b0, x0[k], v)
        a1, b1 = _add(a1, x1[k], u), _add(b1, x1[k], v)
        a2, b2 = _add(a2, x2[k], u), _add(b2, x2[k], v)
        a3, b3 = _add(a3, x3[k], u), _add(b3, x3[k], v)
    _store(y[0], 0, a0, b0)
    _store(y[1], 0, a1, b1)
    _store(y[2], 0, a2, b2)
    _store(y[3], 0, a3, b3)


class _Sums(types.Type):
    """The type, in a loop, of a vector of `_LANES` integers of 32 bits."""

    def __init__(self) -> None:
        super().__init__(name="Sums")


@register_model(_Sums)
class _SumsModel(models.PrimitiveModel):
    def __init__(self, manager: Any, sums: Any):
        super().__init__(manager, sums, _VECTOR)


_SUMS = _Sums()


@intrinsic
def _load(typing: Any, array: Any, place: Any) -> Any:
    """`_LANES` elements of an array of int32, from `place` on, as a vector."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        load = builder.load(address(context, builder, array, given, _VECTOR))
        load.align = 4
        return load

    return _SUMS(array, types.intp), generate


@intrinsic
def _store(typing: Any, array: Any, place: Any, first: Any, second: Any) -> Any:
    """Write two vectors, one after the other, to an array of int32, from `place` on."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        numbers, place, *vectors = given
        for vector in vectors:
            where = address(context, builder, array, (numbers, place), _VECTOR)
            builder.store(vector, where).align = 4
            place = builder.add(place, ir.Constant(place.type, _LANES))
        return context.get_dummy_value()

    return types.void(array, types.intp, _SUMS, _SUMS), generate


@intrinsic
def _add(typing: Any, sums: Any, four: Any, weights: Any) -> Any:
    """Add the products of four inputs and four weights to each sum; return the new sums.

    `four` holds the inputs, the same ones for all sums. `weights` holds four weights for each sum.
    """

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        sums, four, weights = given
        same = alike(builder, four, _VECTOR)
        if _BY_VNNI:
            name = f"llvm.x86.avx512.vpdpbusd.{32 * _LANES}"
            return call(builder, name, _VECTOR, sums, same, weights)
        numbers = [builder.bitcast(each, _BYTES) for each in (same, weights)]
        pairs = call(builder, "llvm.x86.avx2.pmadd.ub.sw", _SHORTS, *numbers)
        ones = ir.Constant(_SHORTS, [1] * (2 * _LANES))
        return builder.add(sums, call(builder, "llvm.x86.avx2.pmadd.wd", _VECTOR, pairs, ones))

    return _SUMS(_SUMS, types.int32, _SUMS), generate
