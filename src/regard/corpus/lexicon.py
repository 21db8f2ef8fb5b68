"""The lexicon of the built-in corpus: its words as objects, read from the tables of `wordlist`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast

from regard.corpus import wordlist
from regard.corpus.morphology import (
    Adjective,
    Case,
    EnglishVerb,
    Gender,
    GermanVerb,
    Noun,
    Sex,
)

Frame = Literal[
    "none", "accusative", "dative", "both", "phrase", "motion", "placement", "transport", "clause",
    "product", "result",
]  # fmt: skip
"""The complements that a verb requires; `none` means that the verb requires none.

`accusative` and `dative` mean an object in that German case, `both` means two objects, and `phrase`
an object with a German preposition. `motion` means a phrase of direction; `placement` and
`transport` mean an object and a phrase of direction. `clause` means a clause with `that` or
`whether`. `product` and `result` belong only to the verb `make`: `product` means an object, and
`result` an object with a comparative, as in `make the lamp more modern`.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """An English verb, its German counterpart, and the complements that both require."""

    frame: Frame
    english: EnglishVerb
    german: GermanVerb
    subjects: tuple[Noun, ...]
    objects: tuple[Noun, ...]
    stative: bool
    """Whether the verb describes a state.

    A predicate with such a verb has no perfect, no passive, no modal verb, and no adverb of manner
    or frequency.
    """
    particle: str
    """The English particle, such as "on" in "turn on"."""
    preposition: str
    """The English preposition: look `at`."""
    german_preposition: str
    """The German preposition before the object, if the frame is `phrase`; otherwise empty."""
    german_case: Case
    """The case of the object, or of the receiver if the frame is `both`."""
    takes_manner: bool
    takes_place: bool


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A place with a preposition that fits it: in the garden, im Garten."""

    preposition: str
    german_preposition: str
    noun: Noun


@dataclass(frozen=True, slots=True, eq=False)
class TimeAdverbial:
    """An adverbial of time: English phrases, each nested in the one before, and German words."""

    phrases: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """The label of each phrase, and a pair (tag, word) for each of its leaves."""
    german: tuple[str, ...]


def _read_nouns() -> Iterator[Noun]:
    genders: dict[str, Gender] = {"m": "masculine", "f": "feminine", "n": "neuter"}
    sexes: dict[str, Sex] = {"male": "male", "female": "female"}
    for kind, table in wordlist.NOUN_TABLE.items():
        for entry in table.split(";"):
            english, german, gender, genitive, plural = entry.split()
            one, _, many = english.partition("/")
            many = many or one + ("es" if one.endswith(("s", "sh", "ch", "x")) else "s")
            if one.endswith("y") and one[-2] not in "aeiou" and "/" not in english:
                many = one[:-1] + "ies"
            sex = sexes.get(kind, "none")
            yield Noun(one, many, german, genders[gender], genitive, plural, kind, sex)


def nouns(names: str) -> tuple[Noun, ...]:
    """The nouns in a comma-separated list.

    An item of the list is a noun, or the name of a kind or a group. Such a name stands for all
    nouns of this kind or group.
    """
    found: dict[Noun, None] = {}
    for name in names.split(","):
        if name in wordlist.GROUPS:
            found |= dict.fromkeys(nouns(wordlist.GROUPS[name]))
        else:
            by_kind = [noun for noun in NOUNS if noun.kind == name]
            found |= dict.fromkeys(by_kind or [noun for noun in NOUNS if noun.english == name])
    return tuple(found)


def _read_adjectives(table: str) -> dict[Noun, tuple[Adjective, ...]]:
    fitting: dict[Noun, list[Adjective]] = {noun: [] for noun in NOUNS}
    for line in table.strip().splitlines():
        names, _, entries = line.partition(": ")
        for entry in entries.split():
            english, _, german = entry.partition(":")
            german, _, stem = german.partition("/")
            for noun in nouns(names):
                fitting[noun].append(Adjective(english, german, stem or german))
    return {noun: tuple(adjectives) for noun, adjectives in fitting.items()}


_CASES: dict[str, Case] = {"dative": "dative", "both": "dative"}


def _read_verb(frame: Frame, line: str) -> Verb:
    arguments, english, german = (column.strip() for column in line.split("|"))
    subjects, _, objects = arguments.partition(" > ")
    base, *parts = english.lstrip("!").split()
    base, _, preposition = base.partition("@")
    base, _, particle = base.partition("+")
    infinitive, third, past, participle, *rest = german.split()
    german_particle, _, stem = infinitive.rpartition("-")
    return Verb(
        frame,
        EnglishVerb.from_parts(base, *parts),
        GermanVerb(
            stem, third, past, participle, german_particle, "sein" if rest == ["sein"] else "haben"
        ),
        nouns(subjects),
        nouns(objects) if objects else (),
        english.startswith("!"),
        particle,
        preposition,
        rest[0] if len(rest) == 2 else "",
        cast(Case, rest[1]) if len(rest) == 2 else _CASES.get(frame, "accusative"),
        base in wordlist.WITH_MANNER.split(),
        base in wordlist.WITH_PLACE.split(),
    )


def _read_places(table: str, column: int) -> tuple[Place, ...]:
    places = []
    for line in table.strip().splitlines():
        noun, _, prepositions = line.split("|")[0].partition(" ")
        entries = prepositions if column == 0 else line.split("|")[1]
        for entry in entries.split():
            english, _, german = entry.partition("=")
            places.append(Place(english, german, nouns(noun)[0]))
    return tuple(places)


def _read_time(entry: str) -> TimeAdverbial:
    english, _, german = entry.partition("=")
    phrases: list[tuple[str, list[tuple[str, str]]]] = []
    for part in english.split():
        tag, colon, word = part.partition(":")
        if colon:
            phrases[-1][1].append((tag, word))
        else:
            phrases.append((part, []))
    return TimeAdverbial(
        tuple((label, tuple(leaves)) for label, leaves in phrases), tuple(german.split())
    )


NOUNS = tuple(_read_nouns())
PERSONS = nouns("person")
MAN = PERSONS[0]
"""A subject without a `Noun`, such as a name or `I`, gets the verbs and adjectives of `man`."""
OWNABLE = {noun for noun in NOUNS if not noun.is_person} | {*nouns(wordlist.RELATIVES)}
"""Nouns that may follow a possessive such as `my`."""
QUALITIES = _read_adjectives(wordlist.QUALITY_TABLE)
STATES = _read_adjectives(wordlist.STATE_TABLE)
ADJECTIVES = {noun: QUALITIES[noun] + STATES[noun] for noun in NOUNS}
COMPARATIVES = _read_adjectives(wordlist.COMPARATIVE_TABLE)
"""For each noun, the adjectives that fit `make NOUN more ADJECTIVE`; `german` is a comparative."""
VERBS: dict[Frame, tuple[Verb, ...]] = {
    cast(Frame, frame): tuple(
        _read_verb(cast(Frame, frame), line) for line in table.strip().splitlines()
    )
    for frame, table in wordlist.VERB_TABLE.items()
}
DOING: dict[Frame, dict[Noun, tuple[Verb, ...]]] = {
    frame: {noun: tuple(v for v in verbs if noun in v.subjects) for noun in NOUNS}
    for frame, verbs in VERBS.items()
}
"""For each frame and each noun, the verbs that may have the noun as subject."""
SUFFERING: dict[Frame, dict[Noun, tuple[Verb, ...]]] = {
    frame: {noun: tuple(v for v in verbs if noun in v.objects) for noun in NOUNS}
    for frame, verbs in VERBS.items()
}
"""For each frame and each noun, the verbs that may have the noun as object."""
SETTINGS = _read_places(wordlist.SETTING_TABLE, 0)
DIRECTIONS = _read_places(wordlist.SETTING_TABLE, 1)
ROADS = tuple(
    place
    for place in DIRECTIONS
    if place.preposition in ("to", "over") or place.noun.english in ("city", "village", "forest")
)
"""The directions that fit `travel` and `drive`."""
SPOTS = _read_places(wordlist.SPOT_TABLE, 0)
TIMES = {
    when: tuple(_read_time(entry) for entry in table.split(";"))
    for when, table in wordlist.TIME_TABLE.items()
}
PARTS_BY_KIND = {kind: nouns(names) for kind, names in wordlist.PART_TABLE.items()}
