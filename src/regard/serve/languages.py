"""Languages by code: their names, language pairs, and language detection."""

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from py3langid.langid import MODEL_FILE, LanguageIdentifier
from pydantic import BaseModel, Field

from regard.errors import RecipeError
from regard.text.scripts import refuse_country

CODE = re.compile(r"[a-zA-Z]{2,3}(?:[-_][a-zA-Z0-9]{2,8})?")
"""The form of a language code: the code of a language, perhaps with a region or a script."""
SURE = 0.5
"""py3langid is sure of a language whose probability is higher than this. In a short text, the most
probable of all languages is often a wrong one, with a low probability."""
LOOKED_AT = 2000
"""The language of a text is detected from at most this many characters at its beginning."""
_NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto",
    "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "is": "Icelandic", "it": "Italian",
    "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "ms": "Malay",
    "nb": "Norwegian", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian",
    "sv": "Swedish", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian",
    "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
"""English names by ISO 639-1 code; a language that is not listed is named by its code."""


def usual(code: str) -> str:
    """The code with hyphens and the usual upper-case and lower-case letters: en, pt-BR, zh-Hans."""
    language, *rest = code.lower().replace("_", "-").split("-")
    cased = (part.upper() if len(part) == 2 else part.capitalize() for part in rest)
    return "-".join([language, *cased])


def base(code: str) -> str:
    """The language in a code that `usual` returned, without region or script: pt for pt-BR."""
    return code.partition("-")[0]


@dataclass(frozen=True)
class LanguagePair:
    """The codes of a model's source and target language, in the form that `usual` returns."""

    source: str
    target: str

    def __post_init__(self) -> None:
        for side in ("source", "target"):
            object.__setattr__(self, side, usual(getattr(self, side)))

    @classmethod
    def read(cls, text: str) -> "LanguagePair":
        """Read "en-de", or "pt-BR:en" if a code has a hyphen.

        Raises RecipeError for other text, for two equal codes, and for a country's code such as jp.
        """
        codes = text.split(":" if ":" in text else "-")
        source, target = codes if len(codes) == 2 else ("", "")
        pair = cls(source, target)
        if not (CODE.fullmatch(source) and CODE.fullmatch(target)) or pair.source == pair.target:
            raise RecipeError(
                f"{text!r} is not a language pair: write two different codes such as en-de, or "
                "pt-BR:en if a code has a hyphen"
            )
        for code in (pair.source, pair.target):
            refuse_country(base(code))
        return pair

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def language_name(code: str) -> str:
    """The English name of a language; its code if the name is unknown."""
    return _NAMES.get(code, code)


class Guess(BaseModel):
    """A language that a text may be in."""

    confidence: Annotated[float, Field(ge=0, le=100)]
    """The probability of the language in per cent; 0 if no probability is known: `Detector.rank`
    says when."""
    language: str


_LABELS = {"nb": "no", "fil": "tl", "iw": "he", "in": "id", "cmn": "zh"}
"""For some language codes that py3langid does not use, the code that py3langid uses instead."""


@cache
def _identifier() -> Any:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class Detector:
    """Detects which of the given languages a text is in.

    py3langid may not know some of the given languages. A text is taken for one of these unknown
    languages in two cases. First: py3langid knows no given language. Second: of all languages that
    py3langid knows, the most probable one is not given, and its probability is above `SURE`.
    """

    def __init__(self, languages: Sequence[str]):
        self._all, self._given = _identifier(), copy(_identifier())
        self._codes: dict[str, list[str]] = {}  # maps py3langid's label to the given codes
        for code in languages:
            label = _LABELS.get(base(code), base(code))
            self._codes.setdefault(label, []).append(code)
        known = set(self._all.labels)
        self._known = [label for label in self._codes if label in known]
        self._unknown = [label for label in self._codes if label not in known]
        self._given.set_languages(self._known or None)

    def rank(self, text: str) -> list[Guess]:
        """The given languages, the most probable one first.

        Languages that py3langid does not know come last, with confidence 0. But if the text is
        taken for one of these unknown languages, all unknown languages come first, and every
        language has confidence 0. Languages that differ only in region or script, such as pt-BR and
        pt-PT, get the same confidence.
        """
        begin = text[:LOOKED_AT]
        if self._unknown and self._is_unknown(begin):
            ranked = [(label, 0.0) for label in (*self._unknown, *self._known)]
        else:
            ranked = [*self._given.rank(begin), *((label, 0.0) for label in self._unknown)]
        return [
            Guess(confidence=round(100 * share, 1), language=code)
            for label, share in ranked
            for code in self._codes[label]
        ]

    def _is_unknown(self, text: str) -> bool:
        """Whether a text is taken for a given language that py3langid does not know."""
        likeliest, share = self._all.classify(text)
        return not self._known or (likeliest not in self._known and share > SURE)
