"""Complements that verbs of the built-in corpus require, and adverbials of manner and place."""

from __future__ import annotations

from dataclasses import dataclass, field

from regard.corpus.derivation import Derivation, Phrase, Word
from regard.corpus.lexicon import (
    COMPARATIVES,
    DIRECTIONS,
    MAN,
    ROADS,
    SETTINGS,
    SPOTS,
    Verb,
    nouns,
)
from regard.corpus.morphology import Case
from regard.corpus.phrases import (
    Nominal,
    Style,
    city_phrase,
    coordinated,
    direction_phrase,
    modified,
    noun_phrase,
    person_name,
    place_phrase,
    prepositional,
    pronoun,
)
from regard.corpus.tenses import Node
from regard.corpus.wordlist import MANNERS

_FAR = ("travel", "drive")
_DIRECTED = ("motion", "transport", "placement")
ADULTS = nouns("male,female")
# For an English particle: the Penn label of its phrase, and its Penn tag. For particles that are
# not listed here, these are "PRT" and "RP".
_PARTICLES = {"back": ("ADVP", "RB"), "away": ("ADVP", "RB")}


@dataclass(slots=True)
class Complement:
    """The phrases that complete a verb, in both languages.

    The English phrases are nodes of the tree. The German words are in several lists, one for each
    position in the German clause.
    """

    english: list[Node] = field(default_factory=list)
    pronouns: list[Word] = field(default_factory=list)
    dative: list[Word] = field(default_factory=list)
    accusative: list[Word] = field(default_factory=list)
    last: list[Word] = field(default_factory=list)
    adverb: list[Word] = field(default_factory=list)
    object: Nominal | None = None
    negative: bool = False
    """Whether one of the German phrases begins with `kein`, which negates the clause."""
    result: tuple[Word, Word] | None = None
    """The English adjective and the German comparative of `make it more difficult`; else None."""

    @property
    def ending(self) -> Nominal | None:
        """The object, if it is not a pronoun and nothing follows it; None otherwise."""
        return None if self.last or not self.object or self.object.is_pronoun else self.object

    def add(self, phrase: Nominal, case: Case) -> None:
        """Add the German words of a noun phrase or pronoun; the caller adds the English node."""
        self.negative = self.negative or phrase.negative
        if phrase.is_pronoun:
            # The accusative pronoun goes first: sie gibt ihn ihm.
            at = 0 if case == "accusative" else len(self.pronouns)
            self.pronouns[at:at] = phrase.german
        elif case == "dative":
            self.dative += phrase.german
        else:
            self.accusative += phrase.german

    def middle(self, negated: bool) -> list[Word]:
        """The German words in order: pronouns, time, dative, accusative, `nicht`, all others.

        Time is an adverbial of time or frequency. The others are, for instance, an adverb of manner
        or a phrase of place. `nicht` is added if the clause is negated, but has no `kein`.
        """
        nicht = [Word("nicht")] if negated and not self.negative else []
        return [
            *self.pronouns, *self.adverb, *self.dative, *self.accusative, *nicht, *self.last
        ]  # fmt: skip


def person(d: Derivation, case: Case, subject: Nominal, style: Style) -> Nominal:
    """A random person: a noun, a name, or a pronoun.

    If the subject is `I` or `we`, the pronoun is neither `I` nor `we`.
    """
    if d.chance(0.15):
        return person_name(d)
    if d.chance(0.15):
        others = ("he", "she", "they") if subject.person == 1 else ("I", "he", "she", "we", "they")
        return pronoun(d.pick(others), case)
    return noun_phrase(d, d.fresh(ADULTS), case, owner=subject, style=style)


def some_object(d: Derivation, verb: Verb, subject: Nominal, style: Style, one: bool) -> Nominal:
    """An object in the case that the verb requires.

    If `one` is True, the object is preferably a single animal or thing, to which a later `it` can
    refer.
    """
    case = verb.german_case
    noun = d.fresh(verb.objects)
    if one and noun.is_person:
        noun = d.fresh(verb.objects)
    if noun.is_person:
        return person(d, case, subject, style)
    plural = False if one else None
    phrase = noun_phrase(d, noun, case, owner=subject, style=style, plural=plural)
    if not one and style == "free" and d.chance(0.08):
        other = d.fresh(verb.objects)
        if not other.is_person and other is not noun:
            return coordinated(phrase, noun_phrase(d, other, case))
    return phrase


def _english_object(verb: Verb, phrase: Nominal) -> list[Node]:
    """The English object with the verb's preposition or particle, but without the verb.

    Examples: (turn) on the lamp, (turn) it on.
    """
    if verb.preposition:
        tag = "TO" if verb.preposition == "to" else "IN"
        return [Phrase("PP", [Word(verb.preposition, tag), phrase.english])]
    if not verb.particle:
        return [phrase.english]
    nodes: list[Node] = [particle(verb), phrase.english]
    return nodes[::-1] if phrase.is_pronoun else nodes


def particle(verb: Verb) -> Phrase:
    """The node of the verb's English particle: turn `on`, come `back`."""
    label, tag = _PARTICLES.get(verb.particle, ("PRT", "RP"))
    return Phrase(label, [Word(verb.particle, tag)])


def complement(
    d: Derivation,
    verb: Verb,
    subject: Nominal,
    *,
    negated: bool,
    target: Nominal | None,
    one: bool,
) -> Complement:
    """Make the complements that the verb requires; `target` is the object or receiver, if given.

    If `one` is True, the object is preferably a single animal or thing, to which a later `it` can
    refer.
    At most one object of a negated clause may take `kein`; any other object is definite.
    """
    parts = Complement()
    style: Style = "negated" if negated else "free"
    definite: Style = "definite" if negated else "free"
    if verb.frame == "both":
        receiver = target or person(d, "dative", subject, definite)
        noun, plural = d.fresh(verb.objects), False if one else None
        parts.object = noun_phrase(d, noun, "accusative", owner=subject, style=style, plural=plural)
        parts.add(receiver, "dative")
        parts.add(parts.object, "accusative")
        parts.english += [receiver.english, parts.object.english]
    elif verb.frame == "phrase":
        phrase = some_object(d, verb, subject, definite, one)
        tree, parts.last = prepositional(verb.preposition, verb.german_preposition, phrase)
        parts.english.append(tree)
    elif verb.frame == "result":
        _add_result(d, verb, parts, one)
    elif verb.objects:
        parts.object = target or some_object(d, verb, subject, style, one)
        parts.add(parts.object, verb.german_case)
        parts.english += _english_object(verb, parts.object)
    elif verb.particle:
        parts.english.append(particle(verb))
    if verb.frame in _DIRECTED:
        tree, german = _way(d, verb, subject)
        parts.english.append(tree)
        parts.last += german
    return parts


def _add_result(d: Derivation, verb: Verb, parts: Complement, one: bool) -> None:
    """Add an object of `make` and a comparative: (makes) the long journey more difficult."""
    noun, plural = d.fresh(verb.objects), False if one else None
    phrase = noun_phrase(d, noun, "accusative", style="definite", plural=plural)
    parts.object = modified(d, phrase) if d.chance(0.3) else phrase
    parts.add(parts.object, "accusative")
    found = d.pick(COMPARATIVES[noun])
    adjective, comparative = parts.result = Word(found.english, "JJ"), Word(found.german)
    more = Phrase("ADJP", [Word("more", "RBR"), adjective])
    parts.english.append(Phrase("S", [parts.object.english, more]))
    parts.last.append(comparative)


def _way(d: Derivation, verb: Verb, subject: Nominal) -> tuple[Phrase, list[Word]]:
    """An English and a German phrase that say where somebody or something moves or is put.

    Examples are `to Munich`, `through the park` and `under the table`.
    """
    if verb.frame == "placement":
        return place_phrase(d, d.pick(SPOTS), "accusative")
    if verb.frame == "motion" and (subject.noun or MAN).is_person and d.chance(0.25):
        return city_phrase(d, "to", "nach")
    return direction_phrase(d, d.pick(ROADS if verb.english.base in _FAR else DIRECTIONS))


def add_adjunct(d: Derivation, verb: Verb, parts: Complement) -> None:
    """Add an adverb of manner or a phrase of place, or neither, at random."""
    if verb.takes_manner and d.chance(0.12):
        manner = d.pick(tuple(MANNERS))
        at = len(parts.english) - (verb.frame in _DIRECTED)
        parts.english.insert(at, Phrase("ADVP", [Word(manner, "RB")]))
        parts.last.insert(0, Word(MANNERS[manner]))
        return
    often = 0.45 if verb.frame == "none" else 0.15
    if verb.takes_place and verb.frame != "phrase" and d.chance(often):
        if d.chance(0.2):
            tree, german = city_phrase(d, "in", "in")
        else:
            tree, german = place_phrase(d, d.pick(SETTINGS), "dative")
        parts.english.append(tree)
        parts.last += german
