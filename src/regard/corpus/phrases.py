"""Noun and prepositional phrases of the built-in corpus, in both languages at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from regard.corpus.derivation import Derivation, Link, Phrase, Referent, Word
from regard.corpus.lexicon import (
    ADJECTIVES,
    OWNABLE,
    PERSONS,
    QUALITIES,
    STATES,
    Place,
    TimeAdverbial,
    nouns,
)
from regard.corpus.morphology import (
    Adjective,
    Case,
    Determiner,
    Noun,
    Sex,
    adjective_ending,
    contracted,
    english_number,
    gendered_pronoun,
    german_number,
    personal_pronoun,
    possessive_stem,
)
from regard.corpus.wordlist import CITIES, FIRST_NAMES

Style = Literal["free", "definite", "negated"]
"""Which determiners a noun phrase may have.

`free` allows all kinds, and `definite` allows only determiners such as `the`, `this` and `my`.
`negated` is for an object in a negated clause: the determiner is a definite one or the German
`kein`.
"""


@dataclass(slots=True)
class Nominal:
    """A noun phrase or a pronoun in both languages, inflected for its case."""

    english: Phrase
    german: list[Word]
    noun: Noun | None = None
    person: int = 3
    plural: bool = False
    sex: Sex = "none"
    referent: Referent | None = None
    is_pronoun: bool = False
    negative: bool = False
    """Whether the German phrase begins with `kein`, which negates the clause."""
    relative: list[Word] = field(default_factory=list)
    """The German relative clause, between commas. It follows the noun, or the clause that
    the noun is in."""


THE = Determiner("the", "DT", "d", "definite")
A = Determiner("a", "DT", "ein", "mixed")
_THIS = Determiner("this", "DT", "dies", "weak")
_THESE = Determiner("these", "DT", "dies", "weak")
_EVERY = Determiner("every", "DT", "jed", "weak")
_ALL = Determiner("all", "DT", "all", "weak")
_MANY = Determiner("many", "JJ", "viel", "strong")
_SOME = Determiner("some", "DT", "einig", "strong")
_MY = Determiner("my", "PRP$", "mein", "mixed")
_OUR = Determiner("our", "PRP$", "unser", "mixed")
_HIS = Determiner("his", "PRP$", "sein", "mixed")
_HER = Determiner("her", "PRP$", "ihr", "mixed")
_THEIR = Determiner("their", "PRP$", "ihr", "mixed")
_BARE = Determiner("", "", "", "strong")
_NOT_A = Determiner("a", "DT", "kein", "mixed")
_NOT_ANY = Determiner("", "", "kein", "mixed")

_CHOICE = {
    ("free", False): (THE,) * 13 + (A,) * 5 + (_THIS, _MY),
    ("free", True): (THE,) * 9 + (_BARE,) * 5 + (_MANY, _MANY, _SOME, _SOME, _THESE, _OUR),
    ("definite", False): (THE, THE, THE, _THIS, _MY),
    ("definite", True): (THE, THE, _THESE),
    ("negated", False): (THE, THE, _NOT_A, _NOT_A, _THIS),
    ("negated", True): (THE, _NOT_ANY, _THESE),
}
_FEATURES = {
    "male": nouns("coat,hat,jacket,shirt"),
    "female": nouns("clothing"),
    "animal": nouns("tail,ear"),
    "building": nouns("roof,door,window"),
}


def commas(words: list[Word]) -> list[Word]:
    """Put commas around a German clause; `corpus.example` removes those that are not needed."""
    return [Word(",", ","), *words, Word(",", ",")]


def its(noun: Noun) -> Determiner:
    """The determiner `its`; the gender of the owner's German noun decides between sein and ihr."""
    return Determiner("its", "PRP$", possessive_stem(noun.gender), "mixed")


def possessive(owner: Nominal) -> Determiner | None:
    """The possessive of an owner, such as `my`.

    Returns None for one child or one girl, because German usage varies.
    """
    if owner.person == 1:
        return _OUR if owner.plural else _MY
    if owner.plural:
        return _THEIR
    if owner.referent:
        return its(owner.referent.noun)
    return {"male": _HIS, "female": _HER, "none": None}[owner.sex]


def _number(d: Derivation, noun: Noun) -> tuple[Phrase | Word, Word]:
    """A random number, which is at least 2, in English and in German."""
    few, many, most = 2 + d.below(11), 13 + d.below(87), 100 * (1 + d.below(9))
    if noun.is_person or d.chance(0.6):
        number = few
    elif d.chance(0.6):
        number = many
    else:
        number = d.pick((most, most + many, 10 * most))
    if number == many and d.chance(0.5):
        return Word(str(number), "CD"), Word(str(number))
    words = [Word(text, "CD") for text in english_number(number)]
    return Phrase("QP", [*words]) if words[1:] else words[0], Word(german_number(number))


def _adjectives(d: Derivation, noun: Noun) -> list[Adjective]:
    if not d.chance(0.34):
        return []
    if QUALITIES[noun] and STATES[noun] and d.chance(0.2):
        return [d.fresh(QUALITIES[noun]), d.fresh(STATES[noun])]
    return [d.fresh(ADJECTIVES[noun])]


def assemble(
    noun: Noun,
    case: Case,
    plural: bool,
    determiner: Determiner,
    adjectives: Sequence[Adjective] = (),
    number: tuple[Phrase | Word, Word] | None = None,
) -> Nominal:
    """Build a noun phrase from its parts, inflected so that they agree."""
    slot = noun.slot(plural)
    head = Word(noun.english_plural, "NNS") if plural else Word(noun.english, "NN")
    english: list[Phrase | Word] = [number[0]] if number else []
    german = [number[1]] if number else []
    english += [Word(adjective.english, "JJ") for adjective in adjectives]
    if determiner.english:
        first = next(Phrase("", [*english, head]).leaves()).text
        article = "an" if determiner.english == "a" and first[0] in "aeiou" else determiner.english
        english.insert(0, Word(article, determiner.tag))
    if form := determiner.form(case, slot):
        german.insert(0, Word(form))
    ending = adjective_ending(determiner.declension, case, slot)
    german += [Word(adjective.stem + ending) for adjective in adjectives]
    german.append(Word(noun.form(case, plural)))
    referent = None if plural or noun.is_person else Referent(noun, head, german[-1])
    return Nominal(
        Phrase("NP", [*english, head]),
        german,
        noun,
        plural=plural,
        sex=noun.sex,
        referent=referent,
        negative=determiner.german == "kein",
    )


def _determiner(
    d: Derivation, noun: Noun, plural: bool, owner: Nominal | None, style: Style
) -> Determiner:
    """A random determiner that fits the noun, perhaps the possessive of the owner."""
    if owner and noun in OWNABLE and d.chance(0.22) and (own := possessive(owner)):
        return own
    determiner = d.pick(_CHOICE[style, plural])
    if determiner in (_MY, _OUR) and noun not in OWNABLE:
        determiner = THE
    if style == "free" and d.chance(0.04):
        determiner = _ALL if plural else _EVERY
    return determiner


def noun_phrase(
    d: Derivation,
    noun: Noun,
    case: Case,
    *,
    plural: bool | None = None,
    owner: Nominal | None = None,
    style: Style = "free",
) -> Nominal:
    """Make a noun phrase: a random determiner, perhaps a numeral and adjectives, and the noun.

    `plural` is random unless given. The determiner fits `style`, or is a possessive of `owner`. If
    the determiner is `its`, the link between `its` and the owner is recorded in `d`.
    """
    if plural is None:
        plural = d.chance(0.25)
    determiner = _determiner(d, noun, plural, owner, style)
    number = None
    if (determiner is _BARE and d.chance(0.8)) or (determiner is THE and plural and d.chance(0.2)):
        number = _number(d, noun)
    phrase = assemble(noun, case, plural, determiner, _adjectives(d, noun), number)
    if owner and owner.referent and determiner.english == "its":
        d.links.append(Link(next(phrase.english.leaves()), phrase.german[0], owner.referent))
    return phrase


def person_name(d: Derivation) -> Nominal:
    """A random first name, which both languages share."""
    sex: Sex = d.pick(("male", "female"))
    text = d.pick(FIRST_NAMES[sex])
    return Nominal(Phrase("NP", [Word(text, "NNP")]), [Word(text)], sex=sex)


def pronoun(english: str, case: Case) -> Nominal:
    """The pronoun `I`, `he`, `she`, `we` or `they` in a case."""
    form, german = personal_pronoun(english, case)
    sexes: dict[str, Sex] = {"he": "male", "she": "female"}
    return Nominal(
        Phrase("NP", [Word(form, "PRP")]),
        [Word(german)],
        person=1 if english in ("I", "we") else 3,
        plural=english in ("we", "they"),
        sex=sexes.get(english, "none"),
        is_pronoun=True,
    )


def it(d: Derivation, antecedent: Referent, case: Case) -> Nominal:
    """The pronoun `it` for an antecedent; the link between pronoun and noun is recorded in `d`."""
    english = Word("it", "PRP")
    german = Word(gendered_pronoun(antecedent.noun.gender, case))
    d.links.append(Link(english, german, antecedent))
    return Nominal(
        Phrase("NP", [english]), [german], antecedent.noun, referent=antecedent, is_pronoun=True
    )


def coordinated(first: Nominal, second: Nominal) -> Nominal:
    """Join two noun phrases by `and` into one in the plural: the man and the woman."""
    english = Phrase("NP", [first.english, Word("and", "CC"), second.english])
    return Nominal(english, [*first.german, Word("und"), *second.german], plural=True)


def prepositional(english: str, german: str, phrase: Nominal) -> tuple[Phrase, list[Word]]:
    """A preposition and a noun phrase; some German prepositions and articles contract: im, zum."""
    tag = "TO" if english == "to" else "IN"
    tree = Phrase("PP", [Word(english, tag), phrase.english])
    if one := contracted(german, phrase.german[0].text):
        return tree, [Word(one), *phrase.german[1:]]
    return tree, [Word(german), *phrase.german]


def place_phrase(d: Derivation, place: Place, case: Case) -> tuple[Phrase, list[Word]]:
    """A phrase of place: in the garden, im Garten (dative) or in den Garten (accusative)."""
    plural = place.noun.kind not in ("area", "indoors") and d.chance(0.06)
    determiner = THE if plural or d.chance(0.8) else d.pick((A, _MY, _THIS))
    phrase = assemble(place.noun, case, plural, determiner, _adjectives(d, place.noun))
    return prepositional(place.preposition, place.german_preposition, phrase)


def direction_phrase(d: Derivation, place: Place) -> tuple[Phrase, list[Word]]:
    """A phrase of direction: to the station, zum Bahnhof; into the house, ins Haus."""
    return place_phrase(d, place, "dative" if place.german_preposition == "zu" else "accusative")


def city_phrase(d: Derivation, english: str, german: str) -> tuple[Phrase, list[Word]]:
    """A preposition with a random city: in Munich, in München."""
    city = d.pick(tuple(CITIES))
    phrase = Nominal(Phrase("NP", [Word(city, "NNP")]), [Word(CITIES[city])])
    return prepositional(english, german, phrase)


def time_phrase(time: TimeAdverbial) -> tuple[Phrase, list[Word]]:
    """An adverbial of time in both languages: yesterday, gestern."""
    tree: Phrase | None = None
    for label, leaves in reversed(time.phrases):
        inner = [tree] if tree else []
        tree = Phrase(label, [*(Word(text, tag) for tag, text in leaves), *inner])
    assert tree is not None
    return tree, [Word(text) for text in time.german]


def modified(d: Derivation, phrase: Nominal) -> Nominal:
    """Add a modifier to a singular noun phrase: of the king, with the red hat, from Berlin.

    `phrase` itself is changed and returned; if no modifier fits, it is returned unchanged.
    """
    noun = phrase.noun
    if noun is None or phrase.plural or next(phrase.english.leaves()).tag == "PRP$":
        return phrase
    if noun.sex != "none" and d.chance(0.4):
        tree, german = city_phrase(d, "from", "aus")
    elif noun.kind in ("animal", "building") or noun.sex != "none":
        part = d.pick(_FEATURES[noun.kind])
        inner = assemble(part, "dative", part.english == "ear", THE, [d.fresh(ADJECTIVES[part])])
        tree, german = prepositional("with", "mit", inner)
    elif noun.is_person:
        return phrase
    else:
        owner = noun_phrase(d, d.fresh(PERSONS), "genitive", plural=False)
        tree, german = Phrase("PP", [Word("of", "IN"), owner.english]), owner.german
    phrase.english = Phrase("NP", [phrase.english, tree])
    phrase.german = phrase.german + german
    return phrase
