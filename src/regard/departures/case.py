"""The types `Departure`, `Compared` (a case), `Judge` and `Finding`; functions that make judges."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from regard.paper import PAPER_RECIPES
from regard.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a run or a model that are not in its recipe; None means an unknown fact."""

    vocabulary: int | None = None
    """The number of entries of the tokenizer."""
    pairs: int | None = None
    """The number of sentence pairs, or trees, in the training text."""
    sample: float | None = None
    """The fraction of the training text, from 0 to 1, from which the sub-words were learned."""
    held_out: int | None = None
    """The number of training pairs, or trees, set aside for validation; 0 if validation files were
    given."""
    mix: tuple[int, ...] | None = None
    """For each training text, how often an epoch has each pair; empty if each pair counts once."""
    dtype: str | None = None
    """The number formats of training as text, such as "bfloat16"."""
    device: str | None = None
    """The device of training, such as "cpu"."""
    steps: int | None = None
    """The number of optimizer steps that were made."""
    averaged: tuple[int, ...] | None = None
    """The steps whose checkpoints were averaged."""
    tuned: bool | None = None
    """Whether beam and alpha were chosen on a development set."""
    begins_with_model: bool | None = None
    """Whether training began with the weights of another model."""


class Compared(NamedTuple):
    """A recipe, facts, and the row of the paper's tables that both are compared with."""

    recipe: Recipe
    row: str
    """The name of the row in `PAPER_RECIPES`."""
    facts: Facts = Facts()

    @property
    def printed(self) -> Recipe:
        """The paper's recipe for the row."""
        return PAPER_RECIPES[self.row]

    def changed(self, *fields: str) -> list[str]:
        """The names in `fields` (`section.key`) of fields that differ from the row's recipe."""
        return [
            field for field in fields if value(self.recipe, field) != value(self.printed, field)
        ]


class Finding(NamedTuple):
    """The result of judging one case by a departure."""

    kind: Literal["departs", "unstated", "unseen"]
    """departs: the case differs from the paper's text or from `Compared.printed`, which has guesses
    where the paper says nothing. unstated: the paper does not answer the question. unseen: the
    paper answers it, but the recipe and the facts do not show whether the case agrees with it."""
    paper: str = ""
    """The paper's answer or, if it has none, sometimes the guess in `Compared.printed`. It may be
    empty, for example if the departure's `quote` gives the answer."""
    here: str = ""
    """The case's answer, such as values in its recipe. If `kind` is "unseen", this text says what
    is not known. It is empty if the departure's `ours` gives the answer."""


class Judge(NamedTuple):
    """A function that judges a case, and the fields of a recipe that the function looks at."""

    finding: Callable[[Compared], Finding | None]
    """The function that judges. It returns None if the case agrees with the paper, or if the
    departure does not concern the case."""
    fields: tuple[str, ...] = ()
    """The names of the fields, as `section.key`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A question on which the paper, its authors' code and regard may differ."""

    name: str
    section: str
    """Sections and tables of the paper."""
    quote: str = ""
    """The paper's words; empty if the paper says nothing about the question."""
    theirs: str
    """The behaviour of the authors' code; "later" means its behaviour after June 2017."""
    ours: str
    """The behaviour of regard."""
    why: str
    """The reason for the behaviour of regard."""
    tests: tuple[str, ...]
    """Paths of the tests that check what regard does."""
    judge: Judge

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a recipe that are judged, as `section.key`."""
        return self.judge.fields


def value(recipe: Recipe, field: str) -> Any:
    """The value of a field that is named as `section.key`."""
    section, _, key = field.partition(".")
    return getattr(getattr(recipe, section), key)


def values(recipe: Recipe, fields: tuple[str, ...] | list[str]) -> str:
    """Fields and their values as text, such as `model.layers = 6`."""
    return ", ".join(f"{field} = {json.dumps(value(recipe, field))}" for field in fields)


def as_row(*fields: str) -> Judge:
    """A judge that finds a departure if a field has another value than in the row's recipe."""

    def finding(case: Compared) -> Finding | None:
        if not (changed := case.changed(*fields)):
            return None
        return Finding("departs", values(case.printed, changed), values(case.recipe, changed))

    return Judge(finding, fields)


def unstated(*fields: str) -> Judge:
    """A judge for a question that the paper does not answer.

    In the recipe of the row, the values of `fields` are regard's guess. A case departs if its
    recipe has other values; otherwise the finding is "unstated".
    """

    def finding(case: Compared) -> Finding | None:
        departs = as_row(*fields).finding(case)
        return departs or Finding("unstated", here=values(case.recipe, fields))

    return Judge(finding, fields)


def unstated_for_parsers(*fields: str) -> Judge:
    """A judge like `unstated` if the row is a parser of §6.3, otherwise like `as_row`."""
    of_parser, of_translator = unstated(*fields), as_row(*fields)
    return Judge(
        lambda case: (of_parser if is_parser(case) else of_translator).finding(case), fields
    )


NO_DEPARTURE = Judge(lambda case: None)
"""A judge for a question on which no recipe can depart: there is never a finding."""


def is_parser(case: Compared) -> bool:
    """Whether the row that a case is compared with is a parser of §6.3."""
    return case.printed.task.output == "trees"
