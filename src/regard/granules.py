"""Steps of a search between two looks at what they found: a granule.

A look at a GPU waits until all is done that it was given, and then the GPU waits for what comes
next. So on a GPU there are several steps between two looks; on a CPU, one. Within a granule no
tensor changes its shape, and no number is needed on the host: states make room before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, Self, TypeVar, cast, runtime_checkable

from jaxtyping import Int
from torch import Tensor

Value = TypeVar("Value")


class Granule:
    """At most `steps` steps without a look, made one after another."""

    def __init__(self, steps: int = 1):
        self.steps = steps

    def run(self, step: Callable[[Value], Value], value: Value, times: int) -> Value:
        """Make so many steps from a value, which may be overwritten.

        `step` must not change the shape of any tensor in it.
        """
        for _ in range(times):
            value = step(value)
        return value


ONE_STEP = Granule()
"""A look after every step."""


@runtime_checkable
class Roomy(Protocol):
    """A state of a model that makes room for the steps of a granule."""

    def occupied(self) -> Int[Tensor, ""]:
        """The number that `with_room` takes, on the state's device."""

    def with_room(self, steps: int, occupied: int) -> Self:
        """This state with room for so many steps, which it keeps from one granule to the next.

        `occupied` is what `occupied()` was, before rows were selected; 0 before the first step.
        """


def occupied(state: Any) -> list[Int[Tensor, ""]]:
    """The number that each `Roomy` state within this one has to know before the next granule."""
    return [one.occupied() for one in _roomy(state)]


def with_room(state: Value, steps: int, known: Iterator[int]) -> Value:
    """A state in which each `Roomy` one has room; `known` are the numbers asked for, in order."""
    if isinstance(state, Roomy):
        return cast(Value, state.with_room(steps, next(known)))
    if isinstance(state, tuple):
        return cast(Value, tuple(with_room(one, steps, known) for one in state))
    if is_dataclass(state) and not isinstance(state, type):
        inner = {its.name: getattr(state, its.name) for its in fields(state)}
        changed = {name: with_room(one, steps, known) for name, one in inner.items()}
        return cast(Value, replace(state, **changed))
    return state


def _roomy(state: Any) -> Iterator[Roomy]:
    if isinstance(state, Roomy):
        yield state
    elif isinstance(state, tuple):
        for one in state:
            yield from _roomy(one)
    elif is_dataclass(state):
        for its in fields(state):
            yield from _roomy(getattr(state, its.name))
