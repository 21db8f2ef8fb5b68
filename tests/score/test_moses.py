"""Words by Moses' scripts: recorded output of the scripts themselves, and what always holds."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.score.moses import has_abbreviations, normalise, split_compounds, tokenise

# Language, line, and what tokenizer.perl -l LANGUAGE -no-escape -q printed for it.
TOKENISED = [
    (
        "en",
        "Mr. Smith's dogs' bowl isn't 1990's, is it?",
        "Mr. Smith 's dogs ' bowl isn 't 1990 's , is it ?",
    ),
    (
        "en",
        "He said 'no' at 5 p.m. in No. 7 ... or No. seven.",
        "He said ' no ' at 5 p.m. in No. 7 ... or No. seven .",
    ),
    ("en", "The end.'", "The end . ' "),
    ("en", "A,B,C cost 5,300 or 5, not 5,x,", "A , B , C cost 5,300 or 5 , not 5 , x ,"),
    ("en", "  tabs\tand\xa0blanks \x01\x1f gone ", "tabs and blanks gone"),
    (
        "fr",
        "L'homme d'Etat l'a-t-il dit aujourd'hui, M. le Président ?",
        "L' homme d' Etat l' a-t-il dit aujourd' hui , M. le Président ?",
    ),
    ("it", "L'Amn. e l'art. 3 dell'accordo.", "L' Amn. e l' art . 3 dell' accordo ."),
    ("ca", "il·lusió d'avui", "il·lusió d' avui"),
    (
        "de",
        "Am 3. Mai ging's z.B. um 10.30 Uhr los, bzw. am 26.",
        "Am 3. Mai ging ' s z.B. um 10.30 Uhr los , bzw. am 26 .",
    ),
    (
        "cs",
        "Podle čl. 5 a např. MUDr. Nováka to je konec.",
        "Podle čl . 5 a např. MUDr. Nováka to je konec .",
    ),
    ("es", "El gr. López y el Sr. Pérez, pág. 3.", "El gr . López y el Sr. Pérez , pág. 3 ."),
    ("ru", "В 2014 г. они жили на ул. Ленина, д. 5.", "В 2014 г. они жили на ул. Ленина , д. 5 ."),
    ("fi", "USA:n ja 20:een: EU:", "USA:n ja 20:een : EU :"),
    ("sv", "S:t Eriks kl. 5, d.v.s. nu: Ja", "S:t Eriks kl. 5 , d.v.s. nu : Ja"),
    ("so", "go'aan 'x' a'", "go'aan ' x ' a'"),
    ("tdt", "ne'e 'X' no'o'", "ne'e ' X ' no'o '"),
    ("xx", "Mr. X, No. 5 und M. Y", "Mr. X , No. 5 und M. Y"),
]
# The same of normalize-punctuation.perl -l LANGUAGE.
NORMALISED = [
    ("en", "He said “yes,” then ‘no’ — it’s “done”.", 'He said "yes," then \'no" - it\'s "done."'),
    ("de", "„Ja“, sagte er (  5 % ) : „nein.“ So", '"Ja", sagte er (5%): "nein". So'),
    (
        "fr",
        "Il a dit\xa0: «\xa0oui\xa0» à 1\xa0000\xa0% ; l’« a »",
        'Il a dit: "oui" à 1,000%; l"" a "',
    ),
    ("cs", "„Ano“, řekl. 1\xa0000", '"Ano", řekl. 1,000'),
    ("es", 'nº\xa05, 30\xa0ºC, 3\xa0cm ´x´ ...".', "nº 5, 30 ºC, 3 cm 'x' \"...."),
    ("ru", "a`b ''c'' 1\xa0000…", 'a\'b " c " 1.000...'),
    ("en", "x \r(a )b ( c ) .", "x (a) b (c)."),
]
BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
LANGUAGES = ["en", "fr", "de", "fi", "sv", "ca", "tdt", "so", "cs", "xx"]
LINES = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n")) | st.text(
    alphabet="aB9é.,'`-: \xa0", max_size=20
)


@pytest.mark.parametrize(("language", "line", "expected"), TOKENISED)
def test_words_are_those_of_the_script(language: str, line: str, expected: str) -> None:
    assert tokenise(line, language) == expected


@pytest.mark.parametrize(("language", "line", "expected"), NORMALISED)
def test_punctuation_is_that_of_the_script(language: str, line: str, expected: str) -> None:
    assert normalise(line, language) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("a--b", "a ##AT##-##AT## -b"),
        ("é-é-é", "é ##AT##-##AT## é ##AT##-##AT## é"),
        ("- a -b c- -", "- a -b c- -"),
        ("a-\xa0b", "a ##AT##-##AT## \xa0b"),  # no blank, as bytes
    ],
)
def test_compounds_are_split_on_bytes(line: str, expected: str) -> None:
    assert split_compounds(line) == expected


@given(LINES)
def test_splitting_only_adds(line: str) -> None:
    assert split_compounds(line).replace(" ##AT##-##AT## ", "-") == line.replace(
        " ##AT##-##AT## ", "-"
    )


@settings(deadline=None)  # the first line loads the lists of abbreviations
@given(LINES, st.sampled_from(LANGUAGES))
def test_tokenising_changes_blanks_only(line: str, language: str) -> None:
    def kept(text: str) -> str:
        return "".join(one for one in text if one not in BLANKS and one > "\x1f")

    words = tokenise(line, language)
    assert kept(words) == kept(line)
    assert "  " not in words.strip(" ") or not kept(line)


@settings(deadline=None)  # the first line loads the lists of abbreviations
@given(LINES, st.sampled_from(LANGUAGES))
def test_letters_are_never_normalised(line: str, language: str) -> None:
    def letters(text: str) -> str:
        return "".join(one for one in text if one.isalnum())

    assert letters(normalise(line, language)) == letters(line)


@pytest.mark.parametrize("line", ["", " ", "\t\xa0 "])
def test_a_line_of_blanks_stays_as_it_is(line: str) -> None:
    assert tokenise(line, "en") == line


def test_languages_with_abbreviations() -> None:
    assert all(map(has_abbreviations, ["en", "de", "fr", "cs", "ru", "es", "mni"]))
    assert not any(map(has_abbreviations, ["xx", "txt", "", "nonbreaking_prefix.de"]))


@pytest.mark.data
def test_official_words_of_single_strings(regard_data: Path) -> None:
    edge = json.loads((regard_data / "oracles/bleu/edge/edge.json").read_text("utf-8"))
    assert edge["strings"]
    for one in edge["strings"]:
        assert tokenise(one["text"], "de") == one["tokenizer_perl_de"]
        assert tokenise(one["text"], "fr") == one["tokenizer_perl_fr"]
        assert split_compounds(one["text"]) == one["compound_split_bytes"]


@pytest.mark.data
@pytest.mark.parametrize(("case", "language"), [("wmt15.en-fr", "fr"), ("wmt16.en-de", "de")])
def test_sacremoses_differs_in_full_stops_at_the_end(
    regard_data: Path, case: str, language: str
) -> None:
    folder = regard_data / "oracles/bleu" / case
    official = json.loads((folder / "bergamot-tiny/scores.json").read_text("utf-8"))
    counted = official["lines_where_sacremoses_differs_from_tokenizer_perl"]
    for side, text in (("ref", folder / "ref"), ("hyp", folder / "bergamot-tiny/hyp")):
        raw, theirs = (
            text.with_suffix(kind).read_text("utf-8").split("\n") for kind in (".txt", ".tok")
        )
        ours = [tokenise(line, language) for line in raw]
        differing = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
        assert len(differing) == counted[side]
        assert all(a.endswith(" .") and a[:-2] + "." == b for a, b in differing)
        splits = text.with_suffix(".atat").read_text("utf-8").split("\n")
        assert [split_compounds(line) for line in theirs] == splits
