"""The shapes that signatures give are checked while tests run."""

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
import torch
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float
from torch import Tensor

from shapes import SHAPED, checked, has_shape


def functions(place: Any, module: str) -> Iterator[Callable[..., Any]]:
    """The functions that a module or a class defines."""
    for value in vars(place).values():
        value = getattr(value, "__func__", getattr(value, "fget", value))
        if getattr(value, "__module__", None) == module:
            if inspect.isclass(value):
                yield from functions(value, module)
            elif inspect.isfunction(value):
                yield value


def is_checked(function: Callable[..., Any] | None) -> bool:
    while function:
        if function.__globals__["__name__"] == "shapes":
            return True
        function = getattr(function, "__wrapped__", None)
    return False


KERNELS = ("add_norm", "attend", "ranking", "softmax_gradient", "summary", "write")
NEEDS = {f"regard.arithmetic.kernels.{name}": "triton" for name in KERNELS}
"""Modules that can be imported only where another one is; Triton comes with PyTorch for CUDA."""


@pytest.mark.parametrize("name", sorted(SHAPED))
def test_every_function_with_shapes_is_checked(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    unchecked = [
        function.__qualname__
        for function in functions(import_module(name), name)
        if any(map(has_shape, function.__annotations__.values())) and not is_checked(function)
    ]
    assert unchecked == []


def test_a_wrong_shape_is_refused() -> None:
    from regard.loss import smoothed_loss

    with pytest.raises(BeartypeCallHintViolation, match="labels"):
        smoothed_loss(torch.zeros(3, 5), torch.zeros(4, dtype=torch.long), 0.1)


@checked
def beginning(
    x: Float[Tensor, "rows columns"], rows: int, *, like: tuple[Float[Tensor, " columns"], ...] = ()
) -> Float[Tensor, "rows columns"]:
    return x[:rows]


def test_a_wrong_shape_is_refused_after_right_ones() -> None:
    x, y = torch.zeros(3, 5), torch.zeros(5)
    for _ in range(2):
        assert beginning(x, rows=3, like=(y, y)) is not x
        assert len(beginning(torch.zeros(2, 5), 3)) == 2
        with pytest.raises(BeartypeCallHintViolation, match="In beginning, return"):
            beginning(x, 2)
        with pytest.raises(BeartypeCallHintViolation, match="In beginning, x"):
            beginning(y, 3)
        with pytest.raises(BeartypeCallHintViolation, match="In beginning, x"):
            beginning(x.long(), 3)
        with pytest.raises(BeartypeCallHintViolation, match="In beginning, like"):
            beginning(x, 3, like=(y[1:],))
