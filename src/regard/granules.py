"""A granule: the steps that a search makes between two looks at its results.

To look at the results, the host waits until the GPU has done all its work, and then the GPU waits
for new work. For this reason, a granule has several steps on a GPU. On a CPU it has one, unless a
compiled loop makes several steps (`arithmetic.few_rows`). Within a granule of several steps, no
tensor changes its shape, and the host reads no number from the GPU: the states make room for the
tokens of all steps before the granule begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, Self, TypeVar, cast, runtime_checkable

from jaxtyping import Int
from torch import Tensor

Value = TypeVar("Value")


class Granule:
    """At most `steps` steps, made one after another, without a look at the results in between."""

    def __init__(self, steps: int = 1):
        self.steps = steps

    def suiting(self, model: Any) -> Granule:
        """The granule for a search of `model`: `self`, or another granule if the model needs it."""
        return self

    def run(self, step: Callable[[Value], Value], value: Value, times: int) -> Value:
        """Call `step` this many times, first with `value`; return the last result.

        `value` may be overwritten. A step that changes the shape of a tensor cannot be recorded.
        """
        for _ in range(times):
            value = step(value)
        return value


ONE_STEP = Granule()
"""A granule of one step: the host looks at the results after each step."""


@runtime_checkable
class Roomy(Protocol):
    """A state of a model that makes room for the steps of a granule."""

    def occupied(self) -> Int[Tensor, ""]:
        """The most slots that any sentence uses, as a tensor on the state's device.

        A slot has room for what the state keeps of one token. `with_room` needs the number.
        """

    def with_room(self, steps: int, occupied: int) -> Self:
        """This state with room for `steps` more steps, during which its tensors keep their shapes.

        `occupied` is the result of `occupied()` before the search selected rows of the state, or 0
        before the first step.
        """


def occupied(state: Any) -> list[Int[Tensor, ""]]:
    """Call `occupied` on each `Roomy` state inside `state`; return the results, for `with_room`."""
    return [one.occupied() for one in _roomy(state)]


def with_room(state: Value, steps: int, known: Iterator[int]) -> Value:
    """This state, with room for `steps` more steps in each `Roomy` state that it contains.

    `known` yields the numbers that `occupied` returned, in the same order.
    """
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


def overwrite(step: Callable[[Value], Value], value: Value) -> None:
    """Overwrite the tensors of `value` with those of `step(value)`.

    The next step then reads and writes the same memory, as a recording of the step (a CUDA graph)
    requires. Raises ValueError if the step changes the shape or dtype of a tensor, if it changes a
    number that is not in a tensor, or if tensors to overwrite share memory. Nothing has then been
    overwritten.
    """
    old, new = list(_leaves(value)), list(_leaves(step(value)))
    pairs = [pair for pair in zip(old, new, strict=True) if pair[0] is not pair[1]]
    changed = [(a, b) for a, b in pairs if isinstance(a, Tensor)]
    _refuse_changes(pairs, changed)
    # A new tensor that shares memory with an old tensor is copied first, because the loop below
    # overwrites the old tensors.
    held = {_memory(a) for a in tensors(value)}
    apart = [b.clone() if _memory(b) in held else b for _, b in changed]
    for (a, _), b in zip(changed, apart, strict=True):
        a.copy_(b)


def _refuse_changes(pairs: list[tuple[Any, Any]], changed: list[tuple[Tensor, Tensor]]) -> None:
    """Raise ValueError if the second of a pair cannot be written over the first."""
    if any(a != b for a, b in pairs if not isinstance(a, Tensor)):
        raise ValueError("the step changes a number that is not in a tensor")
    if any((a.shape, a.dtype) != (b.shape, b.dtype) for a, b in changed):
        raise ValueError("the step changes the shape of a tensor")
    written = [_memory(a) for a, _ in changed if a.numel()]
    if len(set(written)) < len(written) or not all(a.is_contiguous() for a, _ in changed):
        raise ValueError("tensors, or entries of one, share memory")


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in a value, for example in a model's state or in the beams of a search."""
    return (leaf for leaf in _leaves(value) if isinstance(leaf, Tensor))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield all tensors in a value, at any depth, and all objects with nothing in `__dict__`."""
    inner = value if isinstance(value, tuple) else getattr(value, "__dict__", {}).values()
    if isinstance(value, Tensor) or not (inner or isinstance(value, tuple)):
        yield value
    else:
        for one in inner:
            yield from _leaves(one)


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()
