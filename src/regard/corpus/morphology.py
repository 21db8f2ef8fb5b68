"""Inflection in the built-in corpus: the forms of its English and German words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Gender = Literal["masculine", "feminine", "neuter"]
Slot = Literal["masculine", "feminine", "neuter", "plural"]
"""A gender or the plural, with which a German article or adjective agrees."""
Case = Literal["nominative", "accusative", "dative", "genitive"]
Declension = Literal["definite", "weak", "mixed", "strong"]
Sex = Literal["male", "female", "none"]

SLOTS: tuple[Slot, ...] = ("masculine", "feminine", "neuter", "plural")


def _paradigm(**rows: str) -> dict[tuple[str, str], str]:
    """A map from (case, slot) to form; each argument has a case's forms, in the order of SLOTS."""
    return {
        (case, slot): form
        for case, row in rows.items()
        for slot, form in zip(SLOTS, row.split(), strict=True)
    }


_ENDINGS = _paradigm(
    nominative="er e  es e",
    accusative="en e  es e",
    dative="    em er em en",
    genitive="  es er es er",
)
_DEFINITE = _paradigm(
    nominative="der die das die",
    accusative="den die das die",
    dative="    dem der dem den",
    genitive="  des der des der",
)
_RELATIVE = (
    _DEFINITE | _paradigm(genitive="dessen deren dessen deren") | {("dative", "plural"): "denen"}
)
_BARE_EIN = {("nominative", "masculine"), ("nominative", "neuter"), ("accusative", "neuter")}

_PERSONAL = {
    "I": ("me", "ich mich mir"),
    "we": ("us", "wir uns uns"),
    "he": ("him", "er ihn ihm"),
    "she": ("her", "sie sie ihr"),
    "they": ("them", "sie sie ihnen"),
}
_IT = {"masculine": "er ihn ihm", "feminine": "sie sie ihr", "neuter": "es es ihm"}
_CASES = ("nominative", "accusative", "dative")


@dataclass(frozen=True, slots=True, eq=False)
class Determiner:
    """A determiner in both languages.

    `english` is a word such as this or my, or "" if the English phrase has no determiner. `german`
    is the stem, to which endings are added, or "" if the German phrase has no determiner.
    """

    english: str
    tag: str
    german: str
    declension: Declension

    def form(self, case: Case, slot: Slot) -> str:
        """The German form for a noun in this case and slot; empty if German has no determiner."""
        match self.declension:
            case "definite":
                return _DEFINITE[case, slot]
            case "mixed" if (case, slot) in _BARE_EIN:
                return self.german
            case "strong" if not self.german:
                return ""
        return self.german + _ENDINGS[case, slot]


def adjective_ending(declension: Declension, case: Case, slot: Slot) -> str:
    """The ending of an attributive adjective after a determiner of this declension."""
    if declension == "strong":
        genitive_singular = case == "genitive" and slot in ("masculine", "neuter")
        return "en" if genitive_singular else _ENDINGS[case, slot]
    if declension == "mixed" and (case, slot) in _BARE_EIN:
        return _ENDINGS[case, slot]
    short = case == "nominative" or (case == "accusative" and slot in ("feminine", "neuter"))
    return "e" if short and slot != "plural" else "en"


def personal_pronoun(english: str, case: Case) -> tuple[str, str]:
    """A pronoun in both languages: `he` in the dative is ("him", "ihm")."""
    oblique, german = _PERSONAL[english]
    return english if case == "nominative" else oblique, german.split()[_CASES.index(case)]


def gendered_pronoun(gender: Gender, case: Case) -> str:
    """The German form of `it` for an antecedent of this gender."""
    return _IT[gender].split()[_CASES.index(case)]


def relative_pronoun(case: Case, slot: Slot) -> str:
    """The German relative pronoun, such as dessen, for a noun of this gender or number (`slot`)."""
    return _RELATIVE[case, slot]


def possessive_stem(gender: Gender) -> str:
    """The German form of `its` for an owner of this gender, without the ending."""
    return "ihr" if gender == "feminine" else "sein"


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """An English noun and its German counterpart."""

    english: str
    english_plural: str
    german: str
    gender: Gender
    german_genitive: str
    german_plural: str
    kind: str
    sex: Sex

    @property
    def is_person(self) -> bool:
        """Whether the kind is male, female or child; `that` and `it` never refer to such a noun."""
        return self.kind in ("male", "female", "child")

    def slot(self, plural: bool) -> Slot:
        """The gender, or "plural", with which the article and adjectives of the noun agree."""
        return "plural" if plural else self.gender

    def form(self, case: Case, plural: bool) -> str:
        """The German noun in a case and number."""
        if plural:
            takes_n = case == "dative" and self.german_plural[-1] not in "ns"
            return self.german_plural + ("n" if takes_n else "")
        # A masculine noun is weak (der Junge, den Jungen) if its genitive ends in n.
        weak = self.gender == "masculine" and self.german_genitive.endswith("n")
        if case == "genitive" or (weak and case != "nominative"):
            return self.german_genitive
        return self.german


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An English adjective and its German counterpart; endings are added to `stem`."""

    english: str
    german: str
    stem: str


@dataclass(frozen=True, slots=True, eq=False)
class EnglishVerb:
    """The principal parts of an English verb."""

    base: str
    third: str
    past: str
    participle: str

    @classmethod
    def from_parts(
        cls, base: str, past: str = "", participle: str = "", third: str = ""
    ) -> EnglishVerb:
        """Make a verb; by default, `past` and `third` are regular, and `participle` is `past`."""
        if base.endswith("y") and base[-2] not in "aeiou":
            past, third = past or base[:-1] + "ied", third or base[:-1] + "ies"
        past = past or base.removesuffix("e") + "ed"
        third = third or base + ("es" if base.endswith(("o", "s", "sh", "ch", "x")) else "s")
        return cls(base, third, past, participle or past)

    def finite(self, past: bool, person: int, plural: bool) -> tuple[str, str]:
        """The finite form and its Penn tag."""
        if past:
            return self.past, "VBD"
        return (self.base, "VBP") if plural or person == 1 else (self.third, "VBZ")


@dataclass(frozen=True, slots=True, eq=False)
class GermanVerb:
    """The principal parts of a German verb; only the participle includes a separable particle."""

    stem: str
    """The infinitive without its particle."""
    third: str
    past: str
    participle: str
    """The whole participle, particle included."""
    particle: str = ""
    auxiliary: Literal["haben", "sein"] = "haben"
    first: str = ""
    plural: str = ""

    @property
    def infinitive(self) -> str:
        """The whole infinitive, particle included."""
        return self.particle + self.stem

    def finite(self, past: bool, person: int, plural: bool) -> str:
        """The finite form, without a separable particle."""
        if past:
            return self.past + ("n" if self.past.endswith("e") else "en") if plural else self.past
        if plural:
            return self.plural or self.stem
        if person == 3:
            return self.third
        if self.first or not self.third.endswith("t"):  # irregular verbs: ich kann, ich weiß
            return self.first or self.third
        root = self.stem[:-1]  # kaufen without n: ich kaufe; füttern gets an e: ich füttere
        return root if root.endswith("e") else root + "e"


BE = EnglishVerb("be", "is", "was", "been")
HAVE = EnglishVerb("have", "has", "had", "had")
WANT = EnglishVerb("want", "wants", "wanted", "wanted")
DO = EnglishVerb("do", "does", "did", "done")
SEIN = GermanVerb("sein", "ist", "war", "gewesen", auxiliary="sein", first="bin", plural="sind")
HABEN = GermanVerb("haben", "hat", "hatte", "gehabt")
WERDEN = GermanVerb("werden", "wird", "wurde", "geworden", auxiliary="sein", first="werde")
KOENNEN = GermanVerb("können", "kann", "konnte", "gekonnt")
MUESSEN = GermanVerb("müssen", "muss", "musste", "gemusst")
SOLLEN = GermanVerb("sollen", "soll", "sollte", "gesollt")
WOLLEN = GermanVerb("wollen", "will", "wollte", "gewollt")


def be(past: bool, person: int, plural: bool) -> tuple[str, str]:
    """The finite form of the irregular verb `be`, with its Penn tag."""
    if past:
        return "were" if plural else "was", "VBD"
    if plural:
        return "are", "VBP"
    return ("am", "VBP") if person == 1 else ("is", "VBZ")


_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("an", "das"): "ans",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


def contracted(preposition: str, article: str) -> str | None:
    """The contraction of a preposition and an article, such as im; None if they do not contract."""
    return _CONTRACTIONS.get((preposition, article))


_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
_UNITS += " fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_EINHEITEN = "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn"
_EINHEITEN += " fünfzehn sechzehn siebzehn achtzehn neunzehn"
_ZEHNER = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
_ENGLISH = (_UNITS.split(), _TENS.split())
_GERMAN = (_EINHEITEN.split(), _ZEHNER.split())


def english_number(number: int) -> list[str]:
    """The words of a number from 1 to 9999: three, hundred, twenty-one for 321."""
    units, tens = _ENGLISH
    words = []
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            words += [units[number // size], name]
            number %= size
    if number >= 20:
        ten, unit = tens[number // 10 - 2], number % 10
        words.append(f"{ten}-{units[unit]}" if unit else ten)
    elif number:
        words.append(units[number])
    return words


def german_number(number: int) -> str:
    """The word of a number from 1 to 9999: dreihunderteinundzwanzig for 321."""
    units, tens = _GERMAN
    word = ""
    for size, name in ((1000, "tausend"), (100, "hundert")):
        if number >= size:
            word += units[number // size].removesuffix("s" if number // size == 1 else "") + name
            number %= size
    if number >= 20:
        ten, unit = tens[number // 10 - 2], number % 10
        joint = f"{'ein' if unit == 1 else units[unit]}und" if unit else ""
        return word + joint + ten
    return word + (units[number] if number else "")
