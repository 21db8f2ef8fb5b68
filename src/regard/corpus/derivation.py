"""The derivation of a sentence of the built-in corpus: words, random choices, dependencies."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from regard.corpus.morphology import Noun

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class Word:
    """A token of a sentence, compared by identity: a word that occurs twice is two tokens.

    `tag` is the Penn tag of an English token. The tag of a German token has no meaning.
    """

    text: str
    tag: str = ""


@dataclass(slots=True, eq=False)
class Phrase:
    """An inner node of the English tree, with a Penn label such as NP."""

    label: str
    children: list[Phrase | Word]

    def leaves(self) -> Iterator[Word]:
        """The words from left to right."""
        for child in self.children:
            if isinstance(child, Word):
                yield child
            else:
                yield from child.leaves()

    def __str__(self) -> str:
        inside = (f"({c.tag} {c.text})" if isinstance(c, Word) else str(c) for c in self.children)
        return f"({self.label} {' '.join(inside)})"


@dataclass(frozen=True, slots=True)
class Referent:
    """A noun, in both languages, to which `it` and `its` may refer: an animal, thing or place."""

    noun: Noun
    english: Word
    german: Word


@dataclass(frozen=True, slots=True)
class Link:
    """A pronoun in both languages, with the noun that decides the German pronoun's gender."""

    english: Word
    german: Word
    antecedent: Referent


@dataclass(frozen=True, slots=True)
class SplitVerb:
    """A separable German verb, its particle, which stands apart, and the English verb."""

    english: Word
    german: Word
    particle: Word
    infinitive: str


@dataclass(frozen=True, slots=True)
class MadeMore:
    """A form of `make` and the adjective after `more`, as in "makes the path more difficult".

    `german` is the form of `machen`, and `comparative` translates `more` and the adjective: "macht
    den Weg schwieriger".
    """

    english: Word
    adjective: Word
    german: Word
    comparative: Word


class Derivation:
    """Makes the random choices of one sentence, and collects the dependencies in it."""

    def __init__(self, seed: int, index: int):
        # Only random() is guaranteed to give the same numbers in every version of Python.
        self._roll = random.Random(f"{seed}/{index}").random
        self._drawn: list[object] = []
        self.links: list[Link] = []
        self.splits: list[SplitVerb] = []
        self.made: list[MadeMore] = []

    def chance(self, probability: float) -> bool:
        """Draw True with this probability, else False."""
        return self._roll() < probability

    def pick(self, options: Sequence[_T]) -> _T:
        """Draw one of the options, all equally likely; an option listed twice counts as two."""
        return options[int(self._roll() * len(options))]

    def fresh(self, options: Sequence[_T]) -> _T:
        """Draw an option that this method has not drawn before.

        If six draws give only options drawn before, the sixth is accepted.
        """
        for _ in range(6):
            drawn = self.pick(options)
            if drawn not in self._drawn:
                break
        self._drawn.append(drawn)
        return drawn

    def below(self, bound: int) -> int:
        """A random integer from 0 to bound - 1."""
        return int(self._roll() * bound)
