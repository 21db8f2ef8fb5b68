"""§6.1 "BLEU": divide text into words as Moses' scripts do; the paper's BLEU counts such words.

Each public function that takes a line returns exactly the text that the script in its docstring
prints for that line. The lists of abbreviations are Moses' own, from the package sacremoses. The
tokeniser of sacremoses is not used: it divides a line differently from Moses' script if the line
ends in a full stop (docs/decisions.md).
"""

import re
from functools import cache
from itertools import pairwise

import regex

# In decoded text, Perl's \s matches _BLANKS, \p{IsAlpha} matches Alphabetic, \p{IsAlnum} matches
# Alphabetic or Nd, \p{IsN} matches N, and \p{IsLower} matches Lowercase.
_BLANKS = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_Rules = tuple[tuple["regex.Pattern[str]", str], ...]


def split_compounds(line: str) -> str:
    """Separate the parts of compounds: `perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'` on bytes.

    Two matches cannot share a byte, so the second hyphen of `a-b-c` is not replaced. A letter
    outside ASCII has at least two bytes, one for each match: both hyphens of `a-é-c` are replaced.
    """
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", line.encode()).decode()


def tokenise(line: str, language: str) -> str:
    """Separate words and punctuation marks: `tokenizer.perl -l LANGUAGE -no-escape -q`.

    As in the script, a language without a list of abbreviations uses the English list.
    """
    if not regex.search(f"[^{_BLANKS}]", line):
        return line
    text = _replaced(line, _SQUEEZING).strip(" ")
    words = _replaced(text, _separating(language)).rstrip(" ").split(" ")
    ends = [_end_apart(word, language, after) for word, after in pairwise(words)]
    ends.append(_WORD_AND_STOP.sub(r"\1 .", words[-1]))
    return regex.sub(r"\.' ?$", " . ' ", regex.sub(" +", " ", " ".join(ends)).strip(" "))


def normalise(line: str, language: str) -> str:
    """Make quotation marks, dashes and blanks plain: `normalize-punctuation.perl -l LANGUAGE`.

    The script reads bytes, so it knows only the letters, digits and blanks of ASCII.
    """
    text = _replaced(f"{line}\n", _PLAIN)  # one rule of the script needs a character after the line
    if language == "en":
        text = re.sub(r'"([,.]+)', r'\1"', text)
    elif language not in ("cs", "cz"):
        text = re.sub(r'(\.+)"(\s*[^<])', r'"\1\2', text.replace(',"', '",'), flags=re.ASCII)
    mark = "," if language in ("de", "es", "cs", "cz", "fr") else "."
    return re.sub("([0-9])\xa0([0-9])", rf"\1{mark}\2", text).removesuffix("\n")


def has_abbreviations(language: str) -> bool:
    """Whether Moses has a list of abbreviations for a language; if not, English's list is used."""
    return language in _lists()


def _replaced(text: str, rules: _Rules) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _compiled(*rules: tuple[str, str]) -> _Rules:
    return tuple((regex.compile(pattern), replacement) for pattern, replacement in rules)


_SQUEEZING = _compiled((f"[{_BLANKS}]+", " "), (r"[\0-\x1f]", ""), (" +", " "))
_PLAIN = _compiled(
    ("\r", ""),
    (r"\(", " ("),
    (r"\)", ") "),
    (" +", " "),
    (r"\) ([.!:?;,])", r")\1"),
    (r"\( ", "("),
    (r" \)", ")"),
    ("([0-9]) %", r"\1%"),
    (" ([:;])", r"\1"),
    ("`", "'"),
    ("''", ' " '),
    ("[„“”]", '"'),
    ("–", "-"),
    ("—", " - "),
    (" +", " "),
    ("´", "'"),
    ("([a-zA-Z])‘([a-zA-Z])", r"\1'\2"),
    ("([a-zA-Z])’([a-zA-Z])", r"\1'\2"),
    ("[‘‚]", "'"),
    ("’|''", '"'),
    ("…", "..."),
    ("\xa0«\xa0", ' "'),
    ("«\xa0?", '"'),
    ("\xa0»\xa0", '" '),
    ("\xa0?»", '"'),
    ("\xa0%", "%"),
    ("nº\xa0", "nº "),
    ("\xa0([:?!;])", r"\1"),
    ("\xa0(ºC|cm)", r" \1"),
    (",\xa0", ", "),
    (" +", " "),
)
_WORD_AND_STOP = regex.compile(r"^(.*[^.])\.$")


@cache
def _separating(language: str) -> _Rules:
    """Rules that put blanks around every character except letters, digits, blanks and . , - ' `.

    In Finnish and Swedish, the colon is an exception, too; in Catalan, the middle dot is. Further
    rules put blanks around some of these exceptions. `tokenise` then replaces several blanks in a
    row by one.
    """
    inside = {"fi": ":", "sv": ":", "ca": "·"}.get(language, "")
    return _compiled(
        (rf"[^\p{{Alphabetic}}\p{{Nd}}{_BLANKS}.'`,\-{inside}]", r" \g<0> "),
        *_INSIDE_WORDS.get(language, ()),
        (r"\.{2,}", r" \g<0> "),
        (r"(\P{N}),", r"\1 , "),
        (r",(\P{N})", r" , \1"),
        (r"(\p{N}),$", r"\1 ,"),
        *_APOSTROPHES.get(language, [("'", " ' ")]),
    )


def _between(before: str, after: str, replacement: str = r"\1 ' \2") -> tuple[str, str]:
    return f"({before})'({after})", replacement


_A, _X = r"\p{Alphabetic}", r"\P{Alphabetic}"
_TO_THE_LEFT = [_between(_X, _X), _between(_X, _A), _between(_A, _X), _between(_A, _A, r"\1' \2")]
_IN_WORDS = _TO_THE_LEFT[:3]
_TO_THE_RIGHT = [
    _between(_X, _X),
    _between(r"[^\p{Alphabetic}\p{N}]", _A),
    _between(_A, _X),
    _between(_A, _A, r"\1 '\2"),
    _between(r"\p{N}", "s", r"\1 '\2"),
]
_APOSTROPHES = {
    "en": _TO_THE_RIGHT,
    **dict.fromkeys(("fr", "it", "ga", "ca"), _TO_THE_LEFT),
    **dict.fromkeys(("so", "tdt"), _IN_WORDS),
}
"""Rules for apostrophes, by language. In other languages, each apostrophe is a word of its own."""
_INSIDE_WORDS = {
    "fi": [(r":(?!\p{Ll})", " : ")],
    "sv": [(r":(?!\p{Ll})", " : ")],
    "tdt": [(r"'(?!\p{Ll})", " ' ")],
}
"""Rules, by language, that divide a mark from its word, except before a lowercase letter."""


def _end_apart(word: str, language: str, after: str) -> str:
    """Divide a word from its full stop, unless the stop seems to be part of the word.

    `after` is the next word.
    """
    whole = _WORD_AND_STOP.fullmatch(word)
    if not whole:
        return word
    stem = whole[1]
    kept = _abbreviations(language).get(stem)
    if (
        ("." in stem and regex.search(r"\p{Alphabetic}", stem))
        or kept == "always"
        or regex.match(r"\p{Lowercase}", after)
        or (kept == "before a number" and re.match("[0-9]", after))
    ):
        return word
    return f"{stem} ."


@cache
def _abbreviations(language: str) -> dict[str, str]:
    """When each of Moses' abbreviations keeps its full stop: "always" or "before a number".

    Lines are read as the script reads them: if a line ends in a blank, the blank belongs to the
    abbreviation, which then matches no word of a text.
    """
    lists = _lists()
    found = {}
    for line in lists.get(language, lists["en"]).split("\n"):
        if line in ("", "0") or line.startswith("#"):
            continue
        numeric = re.match(r"(.*)\s+#NUMERIC_ONLY#", line)
        found[numeric[1] if numeric else line] = "before a number" if numeric else "always"
    return found


@cache
def _lists() -> dict[str, str]:
    """The text of Moses' file of abbreviations, by language."""
    from sacremoses.corpus import NONBREAKING_PREFIXES  # here, because this import takes a while

    before = "nonbreaking_prefix."
    named = {name.removeprefix(before): text for name, text in NONBREAKING_PREFIXES.items()}
    return {name: text for name, text in named.items() if name.isalpha()}
