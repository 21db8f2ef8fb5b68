"""Scripts and languages of text, for scoring translations and for joining sentences."""

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

from regard.errors import RecipeError
from regard.recipe import BleuTokenizer

HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff]")
"""The letters of Korean: whole syllables, and the letters that make up syllables."""
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile("[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9d]")
_OTHERS = re.compile("[\u0e00-\u0eff\u0f40-\u0fbc\u1000-\u109f\u1780-\u17ff]")
"""Letters of Thai, Lao, Tibetan, Burmese and Khmer, which are written without blanks."""
LOOKED_AT_LINES = 2000
"""The script of a text is found from at most this many of its first lines."""
Script = Literal["Korean", "Chinese", "Japanese", "other unspaced", "spaced"]
"""The script of a text. "other unspaced" is Thai, Lao, Tibetan, Burmese or Khmer; "spaced" is any
script that is not named here, even if it has no blanks between words."""
_LETTER = re.compile(r"[^\W\d_]")
CHINESE_OR_JAPANESE = re.compile(
    "[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003ffff]"
)
"""Chinese and Japanese characters and marks, which are written without blanks."""
_COUNTRIES = {
    "cn": ("Chinese", "zh"), "cz": ("Czech", "cs"), "dk": ("Danish", "da"), "gr": ("Greek", "el"),
    "jp": ("Japanese", "ja"), "kr": ("Korean", "ko"), "ua": ("Ukrainian", "uk"),
    "vn": ("Vietnamese", "vi"),
}  # fmt: skip
"""Codes of countries that people often use by mistake as codes of languages; for each, the language
and its right code. The language Kanuri also has the code kr; its other code, kau, can be used."""


def script_of(lines: Iterable[str]) -> Script:
    """The script of a text, found from its first `LOOKED_AT_LINES` lines.

    Three groups of letters are counted: Chinese characters and kana (the letters of Japanese);
    letters of other scripts without blanks, such as Thai; and Korean letters. If the three groups
    together have at most half of all letters, the text is "spaced". Otherwise, the largest group
    decides; if groups are equally large, the one that is named first. If Chinese characters and
    kana decide, the text is "Chinese" if it has more than four times as many Chinese characters as
    kana, or else "Japanese".
    """
    text = "\n".join(islice(lines, LOOKED_AT_LINES))
    letters = len(_LETTER.findall(text))
    han, kana, hangul, others = (len(s.findall(text)) for s in (_HAN, _KANA, HANGUL, _OTHERS))
    if 2 * (han + kana + hangul + others) <= letters:
        return "spaced"
    if hangul > max(han + kana, others):
        return "Korean"
    if others > han + kana:
        return "other unspaced"
    return "Chinese" if han > 4 * kana else "Japanese"


def suited_tokenizer(lines: Iterable[str]) -> BleuTokenizer:
    """The tokenizer of sacreBLEU for text in the script of these lines.

    It is "zh", which makes a word of each Chinese character, for Chinese; "char" for Japanese,
    Korean and scripts without blanks; and "13a" for all other text. None of these needs a further
    package.
    """
    script = script_of(lines)
    return "13a" if script == "spaced" else "zh" if script == "Chinese" else "char"


def are_korean(*texts: str) -> bool:
    """Whether `script_of` gives "Korean" for these texts together."""
    return script_of(texts) == "Korean"


def meet_without_blank(left: str, right: str, tail: int = 1) -> bool:
    """Whether no blank is written between `left` and `right`, as in Chinese and Japanese.

    It is enough that one of the last `tail` characters of `left`, or the first one of `right`, is
    Chinese or Japanese. If `right` begins with “ or ‘, and `left` ends with one of 。！？ and then
    with ” or ’, these closing marks are skipped. Korean text may have such characters, too, but is
    written with blanks.
    """
    if right.startswith(("‘", "“")) and left.rstrip("’”").endswith(("。", "！", "？")):
        left = left.rstrip("’”")
    meeting = CHINESE_OR_JAPANESE.search(left[-tail:] + right[:1])
    return bool(meeting) and not are_korean(left, right)


def join_sentences(parts: Sequence[str]) -> str:
    """Join sentences or their parts by blanks, except in Chinese and Japanese text."""
    whole = previous = ""
    for part in filter(None, parts):
        blank = "" if not whole or meet_without_blank(previous, part) else " "
        whole += blank + part
        previous = part
    return whole


def refuse_country(code: str) -> None:
    """Raise RecipeError if `code` is a country's code that is often used for its language."""
    if code in _COUNTRIES:
        language, right = _COUNTRIES[code]
        raise RecipeError(f"{code} is the code of a country: the code of {language} is {right}")
