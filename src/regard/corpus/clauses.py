"""Clauses of the built-in corpus, in English and in German.

German has two word orders: one for main clauses, and one for subordinate clauses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from regard.corpus.complements import particle
from regard.corpus.derivation import Derivation, Phrase, SplitVerb, Word
from regard.corpus.lexicon import (
    ADJECTIVES,
    DOING,
    MAN,
    NOUNS,
    PARTS_BY_KIND,
    PERSONS,
    SETTINGS,
    SUFFERING,
    nouns,
)
from regard.corpus.morphology import BE, SEIN, Case, Noun, relative_pronoun
from regard.corpus.phrases import (
    THE,
    Nominal,
    assemble,
    commas,
    coordinated,
    modified,
    noun_phrase,
    person_name,
    pronoun,
)
from regard.corpus.predicates import NO_LIMITS, PredicateLimits, TimePosition, When, predicate
from regard.corpus.tenses import Predicate, verb_group

Extra = Literal["", "relative", "last", "first"]


@dataclass(slots=True)
class Clause:
    """A subject with one or two predicates, in both languages.

    `front` is an adverbial that begins the clause: an English phrase, and the German words.
    """

    subject: Nominal
    predicates: list[Predicate]
    front: tuple[Phrase, list[Word]] | None = None

    def english(self) -> Phrase:
        """The English tree of the clause, labelled S, without the full stop."""
        verbs = [part.english for part in self.predicates]
        if len(verbs) == 1:
            rest = [*self.predicates[0].before, verbs[0]]
        else:
            rest = [Phrase("VP", [verbs[0], Word("and", "CC"), verbs[1]])]
        front = [self.front[0]] if self.front else []
        return Phrase("S", [*front, self.subject.english, *rest])

    def main(self, d: Derivation, before: list[Word] | None = None) -> list[Word]:
        """The words of the German main clause, in which the finite verb is second.

        `before`, if given, has the words that come before the finite verb, in place of the subject
        or `front`. A verb whose particle stands at the end is recorded in `d.splits`.
        """
        subject = self.subject.german + self.subject.relative
        front = before or (self.front[1] if self.front else [])
        words = [*front, self.predicates[0].finite, *subject] if front else []
        for part in self.predicates:
            if part is not self.predicates[0]:
                words += [Word("und"), part.finite]
            elif not front:
                words += [*subject, part.finite]
            words += part.middle
            if part.particle:
                words.append(Word(part.particle))
                verb = next(part.core.leaves())
                d.splits.append(SplitVerb(verb, part.finite, words[-1], part.infinitive))
            words += [*part.right, *part.after]
        return words

    def final(self) -> list[Word]:
        """The words of the German subordinate clause, without `front`.

        In each predicate, the finite verb is last, or only a relative clause follows it. Call this
        only once, because each call puts the separable particle before the text of the finite verb.
        """
        words = self.subject.german + self.subject.relative
        for part in self.predicates:
            if part is not self.predicates[0]:
                words = [*words, Word("und")]
            part.finite.text = part.particle + part.finite.text
            words += [*part.middle, *part.right, part.finite, *part.after]
        return words


_SUBJECTS = ("person",) * 9 + ("name",) * 3 + ("pronoun",) * 3 + ("animal",) * 3 + ("thing",) * 4
_TOPICS = ("person",) * 5 + ("name",) * 2 + ("pronoun",) + ("animal",) * 3 + ("thing",) * 7
_NOUNS_OF_SORT = {"person": PERSONS, "animal": nouns("animal"), "thing": nouns("anything")}
_COORDINATED = {"name": 0.15, "person": 0.08}
"""The probability that `and` joins another person to the subject. The keys are the kinds of the
subject: a first name, or a noun for a person."""
_DONE_TO = {
    noun: tuple(
        verb
        for verb in SUFFERING["accusative"][noun] + SUFFERING["dative"][noun]
        if not verb.preposition and MAN in verb.subjects
    )
    for noun in NOUNS
}
_INSIDES = frozenset(place.noun for place in SETTINGS if place.german_preposition == "in")
_ANYWHERE = tuple(
    verb for verb in DOING["none"][MAN] if not verb.particle and not verb.german.particle
)
_EXTRAS: tuple[Extra, ...] = ("", *("relative",) * 3, *("last",) * 2, *("first",) * 2)
_FEW_EXTRAS: tuple[Extra, ...] = ("",) * 8 + ("relative",) * 3 + ("last", "first")


def some_subject(d: Derivation, *, topic: bool = False) -> Nominal:
    """A random subject.

    If `topic` is True, the subject is more often a single animal or thing, to which a later pronoun
    "it" can refer.
    """
    sort = d.pick(_TOPICS if topic else _SUBJECTS)
    if sort == "pronoun":
        return pronoun(d.pick(("I", "he", "she", "we", "they")), "nominative")
    if sort == "name":
        phrase = person_name(d)
    else:
        plural = False if topic and sort != "person" and d.chance(0.8) else None
        phrase = noun_phrase(d, d.fresh(_NOUNS_OF_SORT[sort]), "nominative", plural=plural)
        if d.chance(0.12):
            return modified(d, phrase)
    if not topic and sort in _COORDINATED and d.chance(_COORDINATED[sort]):
        return coordinated(phrase, noun_phrase(d, d.fresh(PERSONS), "nominative"))
    return phrase


def clause(
    d: Derivation,
    when: When,
    limits: PredicateLimits = NO_LIMITS,
    *,
    subject: Nominal | None = None,
    topic: bool = False,
    rich: bool = False,
    front: bool = False,
    tail: bool = False,
) -> Clause:
    """Make a clause about `subject` or, if none is given, about a random subject.

    limits: restrictions on the predicate; the value of `topic` is used instead of `limits.one`.
    topic: a later pronoun "it" may refer to the subject or object. rich: a relative clause or an
    adverbial of time is likely. front: an adverbial of time may begin the clause. tail: another
    clause follows this one; then no relative clause follows the object.
    """
    subject = subject or some_subject(d, topic=topic)
    extra = d.pick(_EXTRAS if rich else _FEW_EXTRAS)
    if extra == "relative" and not subject.is_pronoun and d.chance(0.4):
        relative_clause(d, subject, when)
    times: dict[Extra, TimePosition] = {"last": "last", "first": "first" if front else ""}
    limits = replace(limits, one=topic)
    found = predicate(d, subject, when, limits, time=times.get(extra, ""))
    if extra == "relative" and found.ending and not (tail or subject.relative):
        relative_clause(d, found.ending, when)
        found.after = found.ending.relative
    return Clause(subject, [found], found.front)


def making(d: Derivation, when: When, *, tail: bool = False) -> Clause:
    """A clause with `make`: made the box, made the path more difficult.

    tail: another clause follows, and a pronoun "it" in that clause may refer to the object.
    """
    subject = some_subject(d)
    actor = subject.noun or MAN
    verbs = DOING["result"][actor] + DOING["product"][actor]
    if not verbs:
        subject = noun_phrase(d, d.fresh(PERSONS), "nominative")
        verbs = DOING["result"][MAN] + DOING["product"][MAN]
    found = predicate(d, subject, when, PredicateLimits(one=tail), verb=d.pick(verbs))
    if found.object and not tail and d.chance(0.5):
        relative_clause(d, found.object, when)
        found.after = found.object.relative
    return Clause(subject, [found])


def relative_clause(d: Derivation, head: Nominal, when: When) -> None:
    """Add a relative clause to `head`: in English to its tree, in German as `head.relative`.

    Nothing is added if `head` is a name, ends in a modifier, joins two noun phrases, or begins with
    a possessive.
    """
    noun = head.noun
    first, last = head.english.children[0], head.english.children[-1]
    if noun is None or not isinstance(last, Word):
        return
    if isinstance(first, Word) and first.tag == "PRP$":  # `my dog` needs no clause to say which dog
        return
    options = [_subject_relative, _subject_relative]
    if _DONE_TO[noun]:
        options += [_object_relative, _object_relative]
    if noun.kind in PARTS_BY_KIND:
        options.append(_whose)
    if noun in _INSIDES:
        options += [_in_which] * 4
    tree, german = d.pick(options)(d, head, noun, when)
    head.english.children[:] = [Phrase("NP", list(head.english.children)), tree]
    head.relative = commas(german)


def _wh(noun: Noun, plural: bool, case: Case) -> tuple[Phrase, list[Word]]:
    person = "who" if case == "nominative" else "whom"
    word = Word(person, "WP") if noun.is_person else Word("that", "WDT")
    return Phrase("WHNP", [word]), [Word(relative_pronoun(case, noun.slot(plural)))]


def _subject_relative(
    d: Derivation, head: Nominal, noun: Noun, when: When
) -> tuple[Phrase, list[Word]]:
    """A relative clause whose pronoun is the subject: who bought the lamp, der die Lampe kaufte."""
    tree, german = _wh(noun, head.plural, "nominative")
    subject = replace(head, english=tree, german=german, relative=[])
    found = predicate(d, subject, when, PredicateLimits(short=True))
    sentence = Phrase("S", [*found.before, found.english])
    return Phrase("SBAR", [tree, sentence]), Clause(subject, [found]).final()


def _object_relative(
    d: Derivation, head: Nominal, noun: Noun, when: When
) -> tuple[Phrase, list[Word]]:
    """A relative clause whose pronoun is the object: whom the boy helps, dem der Junge hilft."""
    verb = d.fresh(_DONE_TO[noun])
    tree, german = _wh(noun, head.plural, verb.german_case)
    subject = _someone(d)
    inside: list[Phrase | Word] = [particle(verb)] if verb.particle else []
    tense = "perfect" if when == "present" and not verb.stative and d.chance(0.3) else when
    found = verb_group(tense, verb.english, verb.german, subject, inside)
    inner = Clause(subject, [found])
    return Phrase("SBAR", [tree, inner.english()]), german + inner.final()


def _whose(d: Derivation, head: Nominal, noun: Noun, when: When) -> tuple[Phrase, list[Word]]:
    """A relative clause whose pronoun names the owner: whose roof is red, dessen Dach rot ist."""
    part = d.pick(PARTS_BY_KIND[noun.kind])
    adjective = d.fresh(ADJECTIVES[part])
    tree = Phrase("WHNP", [Word("whose", "WP$"), Word(part.english, "NN")])
    german = [Word(relative_pronoun("genitive", noun.slot(head.plural))), Word(part.german)]
    found = verb_group(
        when, BE, SEIN, Nominal(tree, german), [Phrase("ADJP", [Word(adjective.english, "JJ")])]
    )
    found.middle = [Word(adjective.german)]
    sentence = Phrase("S", [found.english])
    return Phrase("SBAR", [tree, sentence]), Clause(Nominal(tree, german), [found]).final()


def _in_which(d: Derivation, head: Nominal, noun: Noun, when: When) -> tuple[Phrase, list[Word]]:
    """A relative clause whose pronoun names a place: in which he sleeps, in dem er schläft."""
    which = Phrase("WHNP", [Word("which", "WDT")])
    german = [Word("in"), Word(relative_pronoun("dative", noun.slot(head.plural)))]
    subject = _someone(d)
    verb = d.pick(_ANYWHERE)
    inner = Clause(subject, [verb_group(when, verb.english, verb.german, subject, [])])
    tree = Phrase("WHPP", [Word("in", "IN"), which])
    return Phrase("SBAR", [tree, inner.english()]), german + inner.final()


def _someone(d: Derivation) -> Nominal:
    """A random person as the subject of a relative clause."""
    sort = d.below(4)
    if sort == 0:
        return person_name(d)
    if sort == 1:
        return pronoun(d.pick(("I", "he", "she", "we", "they")), "nominative")
    return assemble(d.fresh(PERSONS), "nominative", d.chance(0.2), THE)
