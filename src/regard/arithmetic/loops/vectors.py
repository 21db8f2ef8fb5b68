"""Vectors of fp32 numbers, for compiled loops whose sums have a fixed order.

In other loops, the compiler chooses the order in which the terms of a sum are added. The order may
differ from one place in the code to another (see `numbers`). The functions of this module choose
the instructions themselves, so the order of a sum is fixed. A vector has `LANES` numbers.
`integers` has vectors of its own, and shares the functions at the end of this module.
"""

import platform
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.registry import cpu_target
from numba.extending import models, register_model

FEATURES = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
"""The names of all processor features that Numba knows, each after a "+" if this processor has the
feature, else after a "-"."""
LANES = 16 if "+avx512f" in FEATURES else 8
_FUSES = "+fma" in FEATURES or platform.machine().lower() in ("aarch64", "arm64")
"""Whether the processor multiplies and adds by one instruction, with one rounding."""
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)

intrinsic: Callable[..., Any] = numba.extending.intrinsic


class _Vector(types.Type):
    """The type, in a loop, of a vector of `LANES` numbers in fp32."""

    def __init__(self) -> None:
        super().__init__(name="Vector")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Any):
        super().__init__(manager, vector, _VECTOR)


_KIND = _Vector()


@intrinsic
def load(typing: Any, array: Any, place: Any) -> Any:
    """`LANES` elements of an array, from `place` on, in fp32.

    The array is in fp32, in bf16 (as 16 bits), or has integers of 8 bits.
    """
    width = array.dtype.bitwidth
    elements = _VECTOR if width == 32 else ir.VectorType(ir.IntType(width), LANES)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        where = address(context, builder, array, given, elements)
        loaded = builder.load(where)
        loaded.align = width // 8
        if width == 16:
            shifts = ir.Constant(_INTEGERS, [16] * LANES)
            return builder.bitcast(builder.shl(builder.zext(loaded, _INTEGERS), shifts), _VECTOR)
        return loaded if width == 32 else builder.sitofp(loaded, _VECTOR)

    return _KIND(array, types.intp), generate


@intrinsic
def store(typing: Any, array: Any, place: Any, vector: Any) -> Any:
    """Write a vector to an array in fp32, from `place` on."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        where = address(context, builder, array, given[:2], _VECTOR)
        builder.store(given[2], where).align = 4
        return context.get_dummy_value()

    return types.void(array, types.intp, _KIND), generate


@intrinsic
def vector_of(typing: Any, number: Any) -> Any:
    """A vector whose elements are all the same number."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return alike(builder, given[0], _VECTOR)

    return _KIND(types.float32), generate


@intrinsic
def multiply_add(typing: Any, x: Any, y: Any, sums: Any) -> Any:
    """x * y + sums, for each element of three vectors."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        if _FUSES:
            return call(builder, f"llvm.fma.v{LANES}f32", _VECTOR, *given)
        # Numba adds its fast-math flags to each floating-point operation that has no flags. These
        # flags allow another order of sums. So both operations get one flag here, "nsz", which does
        # not allow another order.
        flags = ("nsz",)
        return builder.fadd(builder.fmul(*given[:2], flags=flags), given[2], flags=flags)

    return _KIND(_KIND, _KIND, _KIND), generate


def alike(builder: Any, number: Any, vector: Any) -> Any:
    """A vector of the type `vector` whose elements are all `number`."""
    some = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(some, some, places)


def call(builder: Any, name: str, result: Any, *given: Any) -> Any:
    """Call the vector instruction `name`, whose result has the type `result`."""
    kind = ir.FunctionType(result, [each.type for each in given])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), given)


def address(context: Any, builder: Any, kind: Any, given: Any, vector: Any) -> Any:
    """The address of a vector of the type `vector` in an array of the type `kind`.

    `given` holds the array, and the index of the vector's first element.
    """
    array, place = given
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [place]), vector.as_pointer())
