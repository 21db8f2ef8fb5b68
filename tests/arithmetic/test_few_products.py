"""The products of `FewRows`, with weights of each type, compared with products in fp64."""

import os
import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, example, given, settings

from arithmetic.cases import INT8, skip_without

pytest.importorskip("numba")
from regard.arithmetic.layouts import largest_weight
from regard.arithmetic.loops import integers
from regard.arithmetic.loops.few_rows import project
from regard.arithmetic.loops.products import in_blocks

SIZES = st.integers(1, 70)
PACKING = pytest.mark.skipif(integers.ROUNDED == "int8", reason="this processor has no AVX2")
KINDS = ["float32", "uint16", "int8", pytest.param("int32", marks=PACKING)]


def weights_of(kind: str, weight: Any) -> tuple[Any, Any]:
    """The array of a matrix for a loop, and the matrix itself in fp64."""
    if kind in ("int8", "int32"):
        most = largest_weight() if kind == "int32" else 127
        rounded = np.clip(np.round(weight * 60), -most, most).astype(np.int8)
        array = integers.pack(rounded) if kind == "int32" else in_blocks(rounded)
        return array, rounded.astype(np.float64)
    if kind == "uint16":
        bits = weight.view(np.uint32) >> 16
        return in_blocks(bits.astype(np.uint16)), (bits << 16).view(np.float32).astype(np.float64)
    return in_blocks(weight), weight.astype(np.float64)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=30)  # the first call compiles
@given(rows=SIZES, inputs=SIZES, outputs=SIZES, seed=st.integers(0, 2**32 - 1))
@example(rows=5, inputs=1025, outputs=1, seed=0)
@example(rows=1, inputs=3, outputs=1025, seed=0)
def test_a_product_is_that_of_fp64(
    kind: str, rows: int, inputs: int, outputs: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, inputs), np.float32)
    x[draw.integers(rows)] *= draw.choice(np.float32([0, 1e-6, 1e6]))
    array, weight = weights_of(kind, draw.standard_normal((inputs, outputs), np.float32))
    scale, bias = draw.standard_normal((2, outputs), np.float32)
    out = np.empty((1, rows, outputs), np.float32)
    project(kind)(x, array, np.concatenate([scale, bias]), out)
    units = x / rounding_unit(x)
    assume(kind != "int32" or (np.abs(units % 1 - 0.5) > 3e-5).all())  # a half goes up or down
    states = np.round(units) * rounding_unit(x) if kind == "int32" else x.astype(np.float64)
    largest = np.abs(states) @ np.abs(weight) * np.abs(scale) + np.abs(bias)
    assert (np.abs(out[0] - (states @ weight * scale + bias)) <= 1e-5 * largest).all()


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=10)
@given(rows=SIZES, inputs=SIZES, outputs=SIZES, seed=st.integers(0, 2**32 - 1))
def test_a_row_has_the_same_bits_whichever_rows_are_beside_it(
    kind: str, rows: int, inputs: int, outputs: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((rows, inputs), np.float32)
    array, _ = weights_of(kind, draw.standard_normal((inputs, outputs), np.float32))
    numbers = draw.standard_normal(2 * outputs, np.float32)
    together = np.empty((1, rows, outputs), np.float32)
    project(kind)(x, array, numbers, together)
    some = draw.permutation(rows)[: draw.integers(1, rows + 1)]
    alone = np.empty((1, len(some), outputs), np.float32)
    project(kind)(x[some], array, numbers, alone)
    assert (alone == together[:, some]).all()


def rounding_unit(x: Any) -> Any:
    """The unit of which a row's states are whole multiples, when they are rounded to 8 bits."""
    return np.abs(x.astype(np.float64)).max(1, keepdims=True) / 127 + 1e-30


@PACKING
@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_of_the_largest_integers_are_exact(sign: int) -> None:
    """States of 8 bits are multiplied as unsigned integers, up to 255."""
    x, weight = np.ones((1, 8192), np.float32), np.full((8192, 1), sign * largest_weight(), np.int8)
    out = np.empty((1, 1, 1), np.float32)
    project("int32")(x, integers.pack(weight), np.float32([1, 0]), out)
    assert out.item() == sign * 8192 * largest_weight()


BY_AVX2 = """
import numpy as np
from regard.arithmetic.layouts import largest_weight
from regard.arithmetic.loops.integers import ROUNDED, multiply, pack

assert (ROUNDED, largest_weight()) == ("int32", 64)
draw = np.random.default_rng(0)
x = draw.integers(1, 256, (8, 40), np.uint8)
x[0], x[1] = 255, 1
weight = draw.integers(-64, 65, (40, 21), np.int8)
weight[:, 0], weight[:, 1] = 64, -64
ones, zeros, y = np.ones(21, np.float32), np.zeros(21, np.float32), np.empty((8, 21), np.float32)
multiply(x, pack(weight), np.ones(8, np.float32), ones, zeros, y)
assert (y == (x.astype(int) - 128) @ weight).all()
"""


@PACKING
def test_sums_are_exact_on_a_processor_with_avx2_only() -> None:
    """Numba and oneDNN are told that this processor has AVX2, but nothing newer."""
    skip_without(INT8)
    numba = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}
    environment = os.environ | numba | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    subprocess.run([sys.executable, "-c", BY_AVX2], env=environment, check=True)


WITHOUT_FMA = """
import numpy as np
from regard.arithmetic.loops.few_rows import project
from regard.arithmetic.loops.products import in_blocks

draw = np.random.default_rng(0)
x = draw.standard_normal((11, 300), np.float32)
weight, numbers = draw.standard_normal((300, 40), np.float32), np.ones(80, np.float32)
together, alone = np.empty((1, 11, 40), np.float32), np.empty((1, 1, 40), np.float32)
project("float32")(x, in_blocks(weight), numbers, together)
assert np.allclose(together[0], x.astype(np.float64) @ weight + 1, atol=1e-3)
for row in range(11):
    project("float32")(x[row : row + 1].copy(), in_blocks(weight), numbers, alone)
    assert (alone[0, 0] == together[0, row]).all()
"""


def test_a_row_has_the_same_bits_on_a_processor_without_fma() -> None:
    """Numba is told that this processor has no more than the oldest of its kind."""
    environment = os.environ | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    subprocess.run([sys.executable, "-c", WITHOUT_FMA], env=environment, check=True)
