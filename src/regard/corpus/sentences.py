"""The sentences of the built-in corpus: one clause, or connected clauses.

The docstring of `regard.corpus` says which noun the English pronouns `it` and `its` refer to in
these sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from regard.corpus.clauses import Clause, clause, making
from regard.corpus.derivation import Derivation, Link, Phrase, Referent, Word
from regard.corpus.lexicon import (
    MAN,
    NOUNS,
    PARTS_BY_KIND,
    PERSONS,
    SUFFERING,
    TIMES,
    VERBS,
    Frame,
    Verb,
)
from regard.corpus.morphology import Noun
from regard.corpus.phrases import (
    Nominal,
    assemble,
    commas,
    it,
    its,
    noun_phrase,
    person_name,
    pronoun,
    time_phrase,
)
from regard.corpus.predicates import NO_LIMITS, PredicateLimits, Shape, When, predicate
from regard.corpus.tenses import Predicate, verb_group


@dataclass(slots=True)
class SentencePair:
    """The English tree and the German words of a sentence, without the full stop."""

    english: Phrase
    german: list[Word]


# For each English conjunction: its tag, and the German conjunctions for the present and the past.
_CAUSAL = {"because": ("IN", "weil", "weil"), "although": ("IN", "obwohl", "obwohl")}
_TEMPORAL = {
    "when": ("WRB", "wenn", "als"),
    "while": ("IN", "während", "während"),
    "before": ("IN", "bevor", "bevor"),
}
_EVENT = PredicateLimits(plain=True, eventful=True)
_DEED = replace(_EVENT, short=True)
_COORDINATING = {"and": ("und",), "but": (",", "aber"), "so": (",", "deshalb")}


def _verbs_to_it(noun: Noun) -> tuple[Verb, ...]:
    """Verbs that may have a person as subject, and this noun as object or receiver.

    The object or receiver may also be the pronoun `it`, in place of the noun. Verbs of the frames
    `phrase`, `product` and `result` are left out.
    """
    frames: list[Frame] = ["accusative", "dative", "placement", "transport"]
    verbs = [verb for frame in frames for verb in SUFFERING[frame][noun]]
    if noun.kind == "animal":
        verbs += VERBS["both"]
    return tuple(verb for verb in verbs if MAN in verb.subjects)


_TO_IT = {noun: _verbs_to_it(noun) for noun in NOUNS}


def _when(d: Derivation) -> When:
    return d.pick(("present", "past"))


def _someone(d: Derivation) -> Nominal:
    """A random person as the subject."""
    if d.chance(0.25):
        return person_name(d)
    if d.chance(0.2):
        return pronoun(d.pick(("I", "he", "she", "we", "they")), "nominative")
    return noun_phrase(d, d.fresh(PERSONS), "nominative", style="definite")


def _same_person(d: Derivation, first: Clause) -> Nominal:
    """A pronoun for the subject of `first` if that subject is a person.

    Returns a random person if the subject is not a person, or if it is one child, for which neither
    `he` nor `she` fits.
    """
    subject = first.subject
    if subject.noun and not subject.noun.is_person:
        return _someone(d)
    if subject.person == 1:
        return pronoun("we" if subject.plural else "I", "nominative")
    if subject.plural:
        return pronoun("they", "nominative")
    if subject.sex == "none":
        return _someone(d)
    return pronoun("he" if subject.sex == "male" else "she", "nominative")


def _same(d: Derivation, first: Clause) -> Nominal:
    """A pronoun other than `it` for the subject of `first`.

    No such pronoun fits a subject that is one animal, one thing or one child. For such a subject,
    the result is a random person: a name, a noun phrase or another pronoun.
    """
    subject = first.subject
    if subject.noun and subject.plural and not subject.noun.is_person:
        they = pronoun("they", "nominative")
        they.noun = subject.noun
        return they
    return _same_person(d, first)


def _antecedent(first: Clause) -> Referent | None:
    """The noun of `first` to which `it` refers in the next clause; None if there is none."""
    subject, affected = first.subject, first.predicates[-1].object
    if subject.noun and not subject.noun.is_person:
        return subject.referent
    return affected.referent if affected else None


def _doing_it(
    d: Derivation, antecedent: Referent, subject: Nominal, when: When, limits: PredicateLimits
) -> Predicate | None:
    """A predicate with `it` as object or receiver, as in `repairs it`; None if no verb fits."""
    states = not limits.eventful
    verbs = [verb for verb in _TO_IT[antecedent.noun] if states or not verb.stative]
    if not verbs:
        return None
    verb = d.fresh(verbs)
    target = it(d, antecedent, verb.german_case)
    return predicate(d, subject, when, replace(limits, short=True), verb=verb, target=target)


def _continued(
    d: Derivation, first: Clause, when: When, limits: PredicateLimits = NO_LIMITS
) -> Clause:
    """A second clause, mostly with `it` or `its` if `first` has a noun to which they can refer."""
    antecedent = _antecedent(first)
    if not antecedent or d.chance(0.1):
        subject = _same(d, first) if d.chance(0.7) else None
        return clause(d, when, limits, subject=subject)
    noun, way = antecedent.noun, d.below(20)
    if way < 6 and noun.kind in PARTS_BY_KIND and not limits.eventful:
        part = d.pick(PARTS_BY_KIND[noun.kind])
        subject = assemble(part, "nominative", part.english == "ear", its(noun))
        d.links.append(Link(next(subject.english.leaves()), subject.german[0], antecedent))
        return Clause(subject, [predicate(d, subject, when, shape="copula")])
    if way >= 13:
        subject = _same_person(d, first)
        done = _doing_it(d, antecedent, subject, when, limits)
        if done:
            return Clause(subject, [done])
    return clause(d, when, limits, subject=it(d, antecedent, "nominative"))


def _conjoined(d: Derivation, when: When) -> tuple[Clause, Phrase | Word, Word, Clause]:
    """A clause, a conjunction in English and in German, and a second clause."""
    limits, table = (_EVENT, _TEMPORAL) if d.chance(0.3) else (NO_LIMITS, _CAUSAL)
    first = clause(d, when, limits, topic=True, tail=True)
    english = d.pick(tuple(table))
    tag, now, then = table[english]
    word, german = Word(english, tag), Word(now if when == "present" else then)
    node = Phrase("WHADVP", [word]) if tag == "WRB" else word
    return first, node, german, _continued(d, first, when, limits)


def _with_subordinate(d: Derivation, when: When) -> tuple[Clause, list[Word]]:
    """A main clause, and the German words of a subordinate clause that belongs to it.

    The English tree of the main clause contains the subordinate clause. The German words of the
    subordinate clause, with conjunction and commas, are separate: they end the German sentence.
    """
    first, english, german, second = _conjoined(d, when)
    first.predicates[0].core.children.append(Phrase("SBAR", [english, second.english()]))
    return first, commas([german, *second.final()])


# Each of the functions up to `_made` makes sentences of one form; its docstring has an example.


def _single(d: Derivation) -> SentencePair:
    """One main clause.

    Yesterday the man opened the door. Gestern machte der Mann die Tür auf.
    """
    one = clause(d, _when(d), rich=True, front=True)
    return SentencePair(one.english(), one.main(d))


def _subordinate_last(d: Derivation) -> SentencePair:
    """A main clause, then a subordinate clause.

    He sells the lamp because it is old. Er verkauft die Lampe, weil sie alt ist.
    """
    first, second = _with_subordinate(d, _when(d))
    return SentencePair(first.english(), first.main(d) + second)


def _subordinate_first(d: Derivation) -> SentencePair:
    """A subordinate clause, then a main clause.

    Because the lamp is old, he sells it. Weil die Lampe alt ist, verkauft er sie.
    """
    first, english, german, second = _conjoined(d, _when(d))
    tree = second.english()
    tree.children[:0] = [Phrase("SBAR", [english, first.english()]), Word(",", ",")]
    return SentencePair(tree, second.main(d, commas([german, *first.final()])))


def _coordinated(d: Derivation) -> SentencePair:
    """Two main clauses, joined by `and`, `but` or `so`.

    The lamp is old, so he sells it. Die Lampe ist alt, deshalb verkauft er sie.
    """
    when = _when(d)
    first = clause(d, when, topic=True, front=True, tail=True)
    second = _continued(d, first, when)
    english = d.pick(tuple(_COORDINATING))
    link = [Word(text) for text in _COORDINATING[english]]
    german = first.main(d)
    # `deshalb` takes the place before the verb; `und` and `aber` do not.
    german += second.main(d, link) if english == "so" else link + second.main(d)
    tree = Phrase("S", [first.english(), Word(",", ","), Word(english, "CC"), second.english()])
    return SentencePair(tree, german)


def _two_verbs(d: Derivation) -> SentencePair:
    """One subject with two predicates.

    He picks up the lamp and sells it. Er hebt die Lampe auf und verkauft sie.
    """
    when, subject = _when(d), _someone(d)
    shapes: tuple[Shape, ...] = ("accusative", "accusative", "accusative", "motion", "none")
    first = predicate(d, subject, when, replace(_DEED, one=True), shape=d.pick(shapes))
    antecedent = first.object.referent if first.object else None
    second = _doing_it(d, antecedent, subject, when, _DEED) if antecedent else None
    second = second or predicate(d, subject, when, _DEED)
    front = time_phrase(d.pick(TIMES[when])) if d.chance(0.25) else None
    both = Clause(subject, [first, second], front)
    return SentencePair(both.english(), both.main(d))


def _reported(d: Derivation) -> SentencePair:
    """A reported clause, after a verb such as `say`, `know` or `ask`.

    She says that the lamp is old. Sie sagt, dass die Lampe alt ist.
    """
    when, subject, verb = _when(d), _someone(d), d.pick(VERBS["clause"])
    then: When = "past" if when == "past" else _when(d)
    after: list[Word] = []
    if d.chance(0.6):
        inner = clause(d, then, rich=True)
    else:
        inner, after = _with_subordinate(d, then)
    that, dass = ("whether", "ob") if verb.english.base == "ask" else ("that", "dass")
    tree = Phrase("SBAR", [Word(that, "IN"), inner.english()])
    outer = verb_group(when, verb.english, verb.german, subject, [tree])
    front = time_phrase(d.pick(TIMES["past"])) if when == "past" and d.chance(0.3) else None
    whole = Clause(subject, [outer], front)
    german = whole.main(d) + commas([Word(dass), *inner.final(), *after])
    return SentencePair(whole.english(), german)


def _made(d: Derivation) -> SentencePair:
    """A clause with the verb `make`, alone or in a sentence with `because` or `although`.

    The dog made the path more dangerous. Der Hund machte den Weg gefährlicher.
    """
    when, way = _when(d), d.below(4)
    if way < 2:
        one = making(d, when)
        return SentencePair(one.english(), one.main(d))
    conjunction = d.pick(tuple(_CAUSAL))
    tag, german, _ = _CAUSAL[conjunction]
    if way == 2:
        first = making(d, when, tail=True)
        second = _continued(d, first, when)
    else:
        first, second = clause(d, when, tail=True), making(d, when)
    first.predicates[0].core.children.append(
        Phrase("SBAR", [Word(conjunction, tag), second.english()])
    )
    return SentencePair(first.english(), first.main(d) + commas([Word(german), *second.final()]))


_FORMS: tuple[Callable[[Derivation], SentencePair], ...] = (
    (_single,) * 6
    + (_subordinate_last,) * 8
    + (_subordinate_first,) * 4
    + (_coordinated,) * 4
    + (_two_verbs,) * 3
    + (_reported,) * 4
)


_OFTEN = tuple(form for one in _FORMS for form in (one,) * 19 + (_made,))
"""The forms in `_FORMS`, each 19 times and followed by `_made`: one sentence in 20 is of the form
`_made`. For all other sentences, a random number picks the same form here as in `_FORMS`."""


def make_sentence(d: Derivation) -> SentencePair:
    """Make a sentence of a random form."""
    return d.pick(_OFTEN)(d)
