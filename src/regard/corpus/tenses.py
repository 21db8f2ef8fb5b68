"""Verb groups of the built-in corpus: an English and a German verb in the same tense."""

from __future__ import annotations

from dataclasses import dataclass, field

from regard.corpus.derivation import Phrase, Word
from regard.corpus.morphology import (
    BE,
    DO,
    HABEN,
    HAVE,
    KOENNEN,
    MUESSEN,
    SEIN,
    SOLLEN,
    WANT,
    WERDEN,
    WOLLEN,
    EnglishVerb,
    GermanVerb,
    be,
)
from regard.corpus.phrases import Nominal

Node = Phrase | Word


@dataclass(slots=True)
class Predicate:
    """A clause without its subject; the German words are grouped by position in the clause."""

    english: Phrase
    core: Phrase
    """The verb phrase of the main verb, to which adverbials are added."""
    finite: Word
    """The German finite verb, without its particle."""
    right: list[Word]
    """The second part of the German verb: participle, infinitive or both; empty if none."""
    particle: str = ""
    """The separable particle of the finite verb."""
    infinitive: str = ""
    """The German infinitive with its particle; empty if the main verb is not finite, or is `be`."""
    middle: list[Word] = field(default_factory=list)
    """The German words between the two parts of the verb, without the subject."""
    before: list[Node] = field(default_factory=list)
    """An English adverb between the subject and the verb phrase."""
    object: Nominal | None = None
    """The object; a later `it` may refer to this object if the subject is a person."""
    ending: Nominal | None = None
    """The object, if it ends the English predicate, so that a relative clause may follow it."""
    front: tuple[Phrase, list[Word]] | None = None
    """An adverbial of time that begins the clause."""
    after: list[Word] = field(default_factory=list)
    """A German relative clause, which comes after all other words of the predicate."""


_MODALS: dict[str, tuple[str, GermanVerb, bool]] = {
    "can": ("can", KOENNEN, False),
    "could": ("could", KOENNEN, True),
    "must": ("must", MUESSEN, False),
    "should": ("should", SOLLEN, True),
    "will": ("will", WERDEN, False),
}
SEMI_MODALS: dict[str, tuple[EnglishVerb, GermanVerb, bool]] = {
    "want": (WANT, WOLLEN, False),
    "wanted": (WANT, WOLLEN, True),
    "had to": (HAVE, MUESSEN, True),
}


def verb_group(
    tense: str,
    english: EnglishVerb,
    german: GermanVerb,
    subject: Nominal,
    inside: list[Node],
    *,
    negated: bool = False,
    adverb: str = "",
) -> Predicate:
    """Make a predicate from the verbs of both languages in a tense.

    `tense` is "present", "past", "perfect", or a key of _MODALS or SEMI_MODALS. `inside` has
    the nodes after the English main verb; `adverb` is an English adverb of frequency, or empty.
    `negated` adds `not` to the English verb only. If `tense` is a key of SEMI_MODALS, `negated` and
    `adverb` have no effect.
    """
    person, plural = subject.person, subject.plural
    not_ = [Word("not", "RB")] if negated else []
    often: list[Node] = [Phrase("ADVP", [Word(adverb, "RB")])] if adverb else []
    right = [Word(german.infinitive)]

    def lead(verb: EnglishVerb, past: bool) -> Word:
        form = be if verb is BE else verb.finite
        return Word(*form(past, person, plural))

    if tense in ("present", "past"):
        past = tense == "past"
        finite = Word(german.finite(past, person, plural))
        if english is BE:
            top = Phrase("VP", [lead(BE, past), *not_, *often, *inside])
            return Predicate(top, top, finite, [])
        if negated:
            core = Phrase("VP", [Word(english.base, "VB"), *inside])
            top = Phrase("VP", [lead(DO, past), *not_, core])
        else:
            top = core = Phrase("VP", [lead(english, past), *inside])
        return Predicate(top, core, finite, [], german.particle, german.infinitive, before=often)
    if tense in SEMI_MODALS:
        modal, german_modal, past = SEMI_MODALS[tense]
        core = Phrase("VP", [Word(english.base, "VB"), *inside])
        to = Phrase("S", [Phrase("VP", [Word("to", "TO"), core])])
        top = Phrase("VP", [lead(modal, past), to])
        return Predicate(top, core, Word(german_modal.finite(past, person, plural)), right)
    if tense == "perfect":
        core = Phrase("VP", [Word(english.participle, "VBN"), *inside])
        top = Phrase("VP", [lead(HAVE, False), *not_, *often, core])
        auxiliary = SEIN if german.auxiliary == "sein" else HABEN
        finite = Word(auxiliary.finite(False, person, plural))
        return Predicate(top, core, finite, [Word(german.participle)])
    text, german_modal, past = _MODALS[tense]
    core = Phrase("VP", [Word(english.base, "VB"), *inside])
    top = Phrase("VP", [Word(text, "MD"), *not_, *often, core])
    return Predicate(top, core, Word(german_modal.finite(past, person, plural)), right)
