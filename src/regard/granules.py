"""A granule: a group of steps of a search, after which the host looks at the search's results.

To look at the results, the host waits until the GPU has done all its work, and then the GPU waits
for new work. For this reason, a granule has several steps on a GPU. On a CPU, a granule has one
step, unless a compiled loop makes several steps (`arithmetic.few_rows`).

Within a granule of several steps, no tensor changes its shape, and the host reads no number from
the GPU. Therefore, before the granule begins, the model's states get room for the tokens that all
its steps will add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, Self, TypeVar, cast, runtime_checkable

from jaxtyping import Int
from torch import Tensor

Value = TypeVar("Value")


class StepRules(Protocol[Value]):
    """The rules of a search, as far as a granule needs them."""

    @property
    def count(self) -> int:
        """The number of candidates (the best continuations) of a sentence at each step.

        Kernels may be compiled for this number.
        """

    def unseen_step(self, value: Value, /) -> Value:
        """The state of the search after one more step from the state `value`.

        The host does not look at the result.
        """


class Granule:
    """At most `steps` steps, made one after another, without a look at the results in between."""

    def __init__(self, steps: int = 1):
        self.steps = steps

    def suiting(self, model: Any) -> Granule:
        """The granule for a search with `model`: `self`, or another granule that `model` needs."""
        return self

    def run(self, rules: StepRules[Value], value: Value, times: int) -> Value:
        """Make `times` steps by `rules`, from the search's state `value`; return the new state.

        `value` may be overwritten. On a GPU, a step can be recorded as a CUDA graph only if no
        tensor changes its shape.
        """
        for _ in range(times):
            value = rules.unseen_step(value)
        return value


ONE_STEP = Granule()
"""A granule of one step: the host looks at the results after each step."""


@runtime_checkable
class Roomy(Protocol):
    """A state of a model that makes room for the steps of a granule."""

    def occupied(self) -> Int[Tensor, ""]:
        """The number of slots in use, for the sentence whose hypotheses use the most slots.

        A slot has room for what the state stores about one token. The number is a tensor on the
        state's device; later, `with_room` gets it as a number on the host.
        """

    def with_room(self, steps: int, occupied: int) -> Self:
        """This state with room for `steps` more steps, during which its tensors keep their shapes.

        `occupied` is the result of the method `occupied`, called on the state from which the rows
        (hypotheses) of this state were selected. Before the first step of the search, it is 0.
        """


def occupied(state: Any) -> list[Int[Tensor, ""]]:
    """Call `occupied` on each `Roomy` state inside `state`; return the results, for `with_room`."""
    return [one.occupied() for one in _roomy(state)]


def with_room(state: Value, steps: int, known: Iterator[int]) -> Value:
    """This state, with room for `steps` more steps in each `Roomy` state that it contains.

    `known` yields, in the same order, the numbers that the function `occupied` returned.
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
