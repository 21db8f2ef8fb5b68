"""Parts of claims: each part is computed once for each seed, and gives named numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from regard.parts.kept import Measured
from regard.parts.verdicts import Quantity, Statement


class Size(NamedTuple):
    """The size of the trainings that a claim compares; a verdict holds for this size only."""

    steps: int = 1000
    """The number of optimizer steps of each training."""
    pairs: int = 20_000
    """The number of sentence pairs in the training text. Pairs that are too long are not used."""
    tested: int = 500
    """The number of unseen sentences that each trained model translates."""


FULL = Size()


class Part(Protocol):
    """A calculation or a training, which gives numbers that a claim needs."""

    @property
    def name(self) -> str:
        """The name of the part, under which its numbers are kept."""

    def settings(self, size: Size) -> str:
        """The settings on which the numbers of this part depend, as text, without the seed."""

    def run(self, seed: int, out: Path, size: Size) -> Measured:
        """Compute the numbers of this part, by name, for a seed.

        A training keeps its files in the directory `out`. A training that was stopped continues
        from its last checkpoint.
        """


@dataclass(frozen=True)
class Calculation:
    """A calculation that gives numbers for a claim; it needs no training, and takes seconds."""

    name: str
    function: Callable[[int], Measured]
    """A function that computes the numbers for a seed."""

    def settings(self, size: Size) -> str:
        """Only the name, because a calculation has no settings."""
        return self.name

    def run(self, seed: int, out: Path, size: Size) -> Measured:
        """Compute the numbers for a seed; `out` and `size` are not used."""
        return self.function(seed)


class Evidence:
    """The numbers of all parts that a claim needs, for each seed."""

    def __init__(self, numbers: Mapping[tuple[str, int], Measured], seeds: Sequence[int]):
        self._numbers, self._seeds = numbers, seeds

    def of(self, part: str, number: str) -> tuple[float, ...]:
        """The values of the number with the name `number` that a part gave, one for each seed."""
        return tuple(self._numbers[part, seed][number] for seed in self._seeds)

    def figures(
        self, number: str, parts: Mapping[str, str], digits: int = 1
    ) -> tuple[Quantity, ...]:
        """Make a quantity for each of several parts from the part's number with the name `number`.

        `parts` maps the label of each quantity to the part's name; `digits` is `Quantity.digits`.
        """
        return tuple(
            Quantity(label, self.of(part, number), digits) for label, part in parts.items()
        )

    def figures_of(
        self, part: str, numbers: Mapping[str, str], digits: int
    ) -> tuple[Quantity, ...]:
        """Several quantities of one part.

        `numbers` maps the label of each quantity to the name of a number that the part gave;
        `digits` is `Quantity.digits`.
        """
        return tuple(Quantity(label, self.of(part, n), digits) for label, n in numbers.items())


@dataclass(frozen=True)
class Claim:
    """Words of the paper, the parts that test them, and the function that judges them."""

    name: str
    section: str
    quote: str
    """The paper's words."""
    parts: tuple[Part, ...]
    judge: Callable[[Evidence], list[Statement]]
    """A function that makes statements from the numbers of the parts, each with a verdict."""
