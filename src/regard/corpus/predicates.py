"""Predicates of the built-in corpus: verbs with complements, in several tenses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.corpus.complements import ADULTS, Complement, add_adjunct, complement, particle
from regard.corpus.derivation import Derivation, MadeMore, Phrase, Word
from regard.corpus.lexicon import (
    ADJECTIVES,
    DOING,
    MAN,
    NOUNS,
    SPOTS,
    SUFFERING,
    TIMES,
    Frame,
    Verb,
)
from regard.corpus.morphology import BE, SEIN, WERDEN, Noun
from regard.corpus.phrases import Nominal, noun_phrase, place_phrase, prepositional, time_phrase
from regard.corpus.tenses import SEMI_MODALS, Node, Predicate, verb_group
from regard.corpus.wordlist import DEGREES, FREQUENCIES

When = Literal["present", "past"]
TimePosition = Literal["", "last", "first"]
"""The place of an adverbial of time in the English clause; empty if none is asked for."""
Shape = Frame | Literal["copula", "located", "passive"]
"""The kind of a predicate: the frame of an active verb, or one of three other kinds.

The other kinds are `copula` (is old), `located` (is in the box) and `passive` (is repaired).
"""


_NEGATABLE = {"present", "past", "will", "should", "could"}
_ACTIVE: dict[When, tuple[str, ...]] = {
    "present": ("present",) * 13
    + ("perfect",) * 4
    + ("can", "must", "should", "want")
    + ("will",) * 3,
    "past": ("past",) * 17 + ("could", "wanted", "had to"),
}
_PASSIVE: dict[When, tuple[str, ...]] = {
    "present": ("present", "present", "must", "can", "should", "will"),
    "past": ("past",),
}
_DEFINITE = ("the", "this", "these", "my", "our", "his", "her", "its", "their", "who", "that")

# For each kind of subject, the weight with which each shape of predicate is drawn at random.
_PERSON: dict[Shape, int] = {
    "accusative": 20, "dative": 4, "both": 5, "none": 6, "motion": 4, "phrase": 2,
    "placement": 4, "transport": 2, "copula": 5,
}  # fmt: skip
_ANIMAL: dict[Shape, int] = {
    "accusative": 7, "dative": 2, "none": 5, "motion": 3, "phrase": 1, "transport": 1,
    "copula": 7, "passive": 2,
}  # fmt: skip
_VEHICLE: dict[Shape, int] = {
    "copula": 6, "passive": 4, "none": 9, "dative": 2, "motion": 3
}  # fmt: skip
_MOVABLE: dict[Shape, int] = {"copula": 8, "passive": 5, "none": 1, "dative": 2, "located": 3}
_OTHER: dict[Shape, int] = {"copula": 7, "passive": 4, "dative": 2}
_WEIGHTS = {"animal": _ANIMAL, "vehicle": _VEHICLE} | dict.fromkeys(
    ("thing", "text", "clothing", "device"), _MOVABLE
)


def _shapes(noun: Noun) -> tuple[Shape, ...]:
    weights = _PERSON if noun.is_person else _WEIGHTS.get(noun.kind, _OTHER)
    return tuple(
        shape
        for shape, weight in weights.items()
        for _ in range(weight)
        if shape in ("copula", "located")
        or (shape == "passive" and _passive_verbs(noun))
        or (shape in DOING and DOING[shape][noun])
    )


def _passive_verbs(noun: Noun) -> tuple[Verb, ...]:
    return tuple(
        verb
        for verb in SUFFERING["accusative"][noun]
        if not verb.stative and not verb.preposition and MAN in verb.subjects
    )


PASSIVES = {noun: _passive_verbs(noun) for noun in NOUNS}
SHAPES = {noun: _shapes(noun) for noun in NOUNS}
HAPPENING = {
    frame: {noun: tuple(v for v in verbs if not v.stative) for noun, verbs in by_noun.items()}
    for frame, by_noun in DOING.items()
}
"""For each frame and each noun, the verbs in DOING that describe an event, not a state."""
EVENTS = {
    noun: tuple(s for s in shapes if s == "passive" or (s in HAPPENING and HAPPENING[s][noun]))
    for noun, shapes in SHAPES.items()
}
"""For each noun, the shapes of predicate in SHAPES that describe an event, not a state."""


@dataclass(frozen=True, slots=True)
class PredicateLimits:
    """Restrictions on a predicate."""

    one: bool = False
    """If True, the object is preferably a single animal or thing, to which `it` can refer."""
    plain: bool = False
    """If True, the tense is present or past, and there is no modal verb, no negation and no adverb
    of frequency."""
    eventful: bool = False
    """If True, the predicate says what happens, not how things are."""
    short: bool = False
    """If True, no optional adverbial, for instance of manner or place, is added at random."""


NO_LIMITS = PredicateLimits()


@dataclass(slots=True)
class _Draft:
    """A predicate that is not complete: some German words are not in order yet.

    These words stand between the two parts of the verb, as in "hat ... gesehen".
    """

    predicate: Predicate
    parts: Complement
    tense: str
    negated: bool
    timeless: bool
    """Whether an adverbial of time, such as `now`, would be odd."""


def _is_definite(subject: Nominal) -> bool:
    """Whether the subject counts as definite; `not` follows only such a subject.

    After `every`, `a` or `many`, it would be unclear what `not` negates. A pronoun, a name, and a
    subject that begins with a word of `_DEFINITE` count as definite; so do two phrases joined by
    `and`, whatever their determiners are.
    """
    first = next(subject.english.leaves()).text
    return subject.is_pronoun or first in _DEFINITE or subject.noun is None


def _is_alive(subject: Nominal) -> bool:
    noun = subject.noun or MAN
    return noun.is_person or noun.kind == "animal"


def _tense(d: Derivation, verb: Verb, subject: Nominal, when: When, limits: PredicateLimits) -> str:
    if limits.plain or verb.stative:
        return when
    tense = d.pick(_ACTIVE[when])
    return tense if _is_alive(subject) or tense in ("perfect", "will") else when


def _quality(d: Derivation, subject: Nominal, when: When, negated: bool) -> _Draft:
    """A predicate with an adjective: is old."""
    adjective = d.fresh(ADJECTIVES[subject.noun or MAN])
    english: list[Node] = [Word(adjective.english, "JJ")]
    parts = Complement(last=[Word(adjective.german)])
    if not negated and d.chance(0.3):
        degree = d.pick(tuple(DEGREES))
        english.insert(0, Word(degree, "RB"))
        parts.last.insert(0, Word(DEGREES[degree]))
    inside: list[Node] = [Phrase("ADJP", english)]
    found = verb_group(when, BE, SEIN, subject, inside, negated=negated)
    return _Draft(found, parts, when, negated, timeless=not _is_alive(subject))


def _location(d: Derivation, subject: Nominal, when: When, negated: bool) -> _Draft:
    """A predicate with a place: is in the box."""
    tree, german = place_phrase(d, d.pick(SPOTS), "dative")
    found = verb_group(when, BE, SEIN, subject, [tree], negated=negated)
    return _Draft(found, Complement(last=german), when, negated, timeless=False)


def _passive(
    d: Derivation, subject: Nominal, when: When, limits: PredicateLimits, negatable: bool
) -> _Draft:
    """A predicate in the passive, perhaps with an agent: is repaired by the man."""
    tense = when if limits.plain else d.pick(_PASSIVE[when])
    negated = negatable and tense in _NEGATABLE
    verb = d.fresh(PASSIVES[subject.noun or MAN])
    core = Phrase("VP", [Word(verb.english.participle, "VBN")])
    if verb.particle:
        core.children.append(particle(verb))
    parts = Complement()
    if d.chance(0.4):
        agent = noun_phrase(d, d.fresh(ADULTS), "dative", style="definite")
        tree, parts.last = prepositional("by", "von", agent)
        core.children.append(tree)
    found = verb_group(tense, BE, WERDEN, subject, [core], negated=negated)
    found.core = core
    found.right.insert(0, Word(verb.german.participle))
    return _Draft(found, parts, tense, negated, timeless=False)


def _active(
    d: Derivation,
    subject: Nominal,
    when: When,
    limits: PredicateLimits,
    verb: Verb,
    target: Nominal | None,
    timed: bool,
    negatable: bool,
) -> _Draft:
    """A predicate with an active verb: repairs the car."""
    tense = _tense(d, verb, subject, when, limits)
    negated = negatable and tense in _NEGATABLE
    parts = complement(d, verb, subject, negated=negated, target=target, one=limits.one)
    adverb = ""
    bare = limits.short or limits.plain or negated or timed or verb.stative
    if not bare and tense not in SEMI_MODALS and d.chance(0.08):
        adverb = d.pick(tuple(FREQUENCIES))
        parts.adverb = [Word(FREQUENCIES[adverb])]
    if not (limits.short or adverb):
        add_adjunct(d, verb, parts)
    found = verb_group(
        tense, verb.english, verb.german, subject, parts.english, negated=negated, adverb=adverb
    )
    found.object, found.ending = parts.object, parts.ending
    _note_result(d, parts, found)
    return _Draft(found, parts, tense, negated, timeless=verb.stative or bool(adverb))


def _note_result(d: Derivation, parts: Complement, found: Predicate) -> None:
    """Record `make`, the adjective after `more` and their German words, if there is a `more`."""
    if parts.result:
        main = found.right[-1] if found.right else found.finite
        d.made.append(MadeMore(next(found.core.leaves()), parts.result[0], main, parts.result[1]))


def predicate(
    d: Derivation,
    subject: Nominal,
    when: When,
    limits: PredicateLimits = NO_LIMITS,
    *,
    shape: Shape | None = None,
    verb: Verb | None = None,
    target: Nominal | None = None,
    time: TimePosition = "",
) -> Predicate:
    """Make a predicate for the subject; `shape`, `verb` and `target` are random unless given.

    `target` is the object of the verb, or the receiver for verbs such as `give`. An adverbial of
    time is added at the position `time`, if an adverbial fits.
    """
    actor = subject.noun or MAN
    shapes, verbs = (EVENTS, HAPPENING) if limits.eventful else (SHAPES, DOING)
    if not verb:
        shape = shape or d.pick(shapes[actor])
    negatable = not limits.plain and _is_definite(subject) and d.chance(0.14)
    if shape == "copula":
        draft = _quality(d, subject, when, negatable)
    elif shape == "located":
        draft = _location(d, subject, when, negatable)
    elif shape == "passive":
        draft = _passive(d, subject, when, limits, negatable)
    else:
        verb = verb or d.fresh(verbs[shape or "none"][actor])
        draft = _active(d, subject, when, limits, verb, target, bool(time), negatable)
    _add_time(d, draft, when, limits, time)
    draft.predicate.middle = draft.parts.middle(draft.negated)
    return draft.predicate


def _add_time(
    d: Derivation, draft: _Draft, when: When, limits: PredicateLimits, time: TimePosition
) -> None:
    """Add an adverbial of time at the position `time`, if an adverbial fits.

    With `will`, a predicate for which no position is given may get an adverbial at the end.
    """
    if draft.tense == "will" and not (time or limits.short) and d.chance(0.5):
        time = "last"
    if not time or draft.timeless or draft.tense == "perfect":
        return
    times = TIMES["future"] * 2 if draft.tense == "will" else TIMES[when]
    tree, german = time_phrase(d.pick(times + TIMES["any"]))
    found = draft.predicate
    if time == "last":
        found.core.children.append(tree)
        draft.parts.adverb, found.ending = german, None
    else:
        found.front = tree, german
