"""A departure, what it judges, and what it finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from regard.paper import PAPER_RECIPES
from regard.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that a run or a model shows besides its recipe; None where it does not show one."""

    vocabulary: int | None = None
    """Entries of its tokenizer."""
    pairs: int | None = None
    """Sentence pairs, or trees, that it is trained on."""
    sample: float | None = None
    """The share of its training text from which the sub-words were learned."""
    held_out: int | None = None
    """Pairs of its training text that were set aside for validation; 0 if files were given."""
    mix: tuple[int, ...] | None = None
    """How often an epoch has the pairs of each text; empty if it has all of them once."""
    dtype: str | None = None
    """The number formats of training in words, such as "bfloat16"."""
    device: str | None = None
    """The device of training, such as "cpu"."""
    steps: int | None = None
    """Optimizer steps done."""
    averaged: tuple[int, ...] | None = None
    """The steps whose checkpoints were averaged."""
    tuned: bool | None = None
    """Whether beam and alpha were chosen by a development set."""
    begins_with_model: bool | None = None
    """Whether training began with the weights of another model."""


class Compared(NamedTuple):
    """A recipe and other facts, and the row of the paper's tables that they are compared with."""

    recipe: Recipe
    row: str
    """A name in `PAPER_RECIPES`."""
    facts: Facts = Facts()

    @property
    def printed(self) -> Recipe:
        """The recipe of the row."""
        return PAPER_RECIPES[self.row]

    def changed(self, *fields: str) -> list[str]:
        """The fields, as `section.key`, in which the recipe differs from the row's."""
        return [
            field for field in fields if value(self.recipe, field) != value(self.printed, field)
        ]


class Finding(NamedTuple):
    """A departure of one case."""

    kind: Literal["departs", "unstated", "unseen"]
    """departs: the paper, or its row, says otherwise. unstated: the paper does not say. unseen: the
    paper says it, and what is given here does not show whether it is so."""
    paper: str = ""
    """The row's values; empty if the quotation says it all."""
    here: str = ""
    """The values here; empty if the departure's `ours` says it."""


Judge = Callable[[Compared], Finding | None]


@dataclass(frozen=True, slots=True)
class Departure:
    """A question on which the paper, its authors' code and regard may differ."""

    name: str
    section: str
    """Sections and tables of the paper."""
    quote: str
    """The paper's words; empty if it does not say."""
    theirs: str
    """The way of the authors' code; "later" is what it became after June 2017."""
    ours: str
    """The way of regard."""
    why: str
    tests: tuple[str, ...]
    """Paths of the tests that hold what regard does."""
    judge: Judge
    fields: tuple[str, ...] = ()
    """The fields of a recipe that it judges, as `section.key`."""


def value(recipe: Recipe, field: str) -> Any:
    """The value of a field that is named as `section.key`."""
    section, _, key = field.partition(".")
    return getattr(getattr(recipe, section), key)


def values(recipe: Recipe, fields: tuple[str, ...] | list[str]) -> str:
    """Fields and their values in words."""
    return ", ".join(f"{field} = {json.dumps(value(recipe, field))}" for field in fields)


def all_fields() -> list[str]:
    """Every field of a recipe, as `section.key`."""
    return [f"{name}.{key}" for name, section in Recipe() for key in type(section).model_fields]


def as_row(*fields: str) -> Judge:
    """It departs if a field is not that of the row."""

    def judge(case: Compared) -> Finding | None:
        if not (changed := case.changed(*fields)):
            return None
        return Finding("departs", values(case.printed, changed), values(case.recipe, changed))

    return judge


def unstated(*fields: str) -> Judge:
    """The paper says nothing; it departs if a field is not that of the row, which are our guess."""

    def judge(case: Compared) -> Finding | None:
        return as_row(*fields)(case) or Finding("unstated", here=values(case.recipe, fields))

    return judge


def never(case: Compared) -> Finding | None:
    """It is as published, whatever the recipe."""
    return None


def departs_if(condition: Callable[[Compared], bool]) -> Judge:
    """It departs under a condition; `ours` of the departure says how."""
    return lambda case: Finding("departs") if condition(case) else None


def is_parser(case: Compared) -> bool:
    """Whether the row is a parser of §6.3."""
    return case.printed.task.output == "trees"
