"""Search again for translations that look wrong, and report the flaws that remain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from regard.mending.capitals import recased
from regard.mending.flaws import Flaw, flaws
from regard.mending.retry import search_again
from regard.translation import Translation, Translator


@dataclass(frozen=True)
class Mended:
    """The translations of a sentence, found by the first search or by a second search."""

    translations: list[Translation]
    """At least one translation; the best comes first. All scores use the length penalty of the
    first search. Translations of the second search are sorted by the length penalty of the second
    search, which may be another one."""
    flaws: tuple[Flaw, ...] = ()
    """Flaws of the best translation."""
    retried: bool = False
    """Whether a second search was made."""


def mended(
    translator: Translator,
    sentences: Sequence[str],
    found: Sequence[list[Translation]],
    *,
    retry: bool = True,
) -> list[Mended]:
    """Search again for the sentences whose best translation looks wrong.

    `found` has the translations of each sentence by the first search. If the second search finds
    translations without flaws, they replace the first ones; otherwise the first ones are returned
    with their flaws. If `retry` is False, there is no second search.

    If a sentence has many capitals, and more pieces because of them (`capitals.recased`), it is
    searched for again, even if its translation looks right. The second search gets the sentence
    with fewer capitals. If all letters of the sentence are capitals, the translations that this
    search finds are put in capitals, too.

    A sentence is not searched for again if the text that the second search would get has more than
    `translator.longest` pieces, </s> included.
    """
    sentences = list(map(translator.plain, sentences))
    counts = _pieces(translator, sentences)
    results = [
        Mended(best, _flaws(translator, sentence, count, best[0].text))
        for sentence, count, best in zip(sentences, counts, found, strict=True)
    ]
    if retry:
        asked = list(map(partial(_to_ask, translator), sentences, counts))
        _search_again(translator, sentences, asked, results)
    return results


def _search_again(
    translator: Translator, sentences: list[str], asked: list[_Question], results: list[Mended]
) -> None:
    """Search again for results that look wrong, and for sentences with too many capitals.

    Each of these results gets `retried` = True. Translations without flaws replace the first ones;
    if the second search finds none, the first ones stay. Sentences that are too long are left out.
    """
    wrong = [i for i, it in enumerate(results) if it.flaws or asked[i].text != sentences[i]]
    wrong = [i for i in wrong if asked[i].pieces <= translator.longest]
    again = search_again(translator, [asked[i].text for i in wrong]) if wrong else []
    for i, others in zip(wrong, again, strict=True):
        results[i] = _better(results[i], _sound(translator, asked[i], others))


class _Question(NamedTuple):
    """A sentence as the second search gets it."""

    text: str
    in_capitals: bool
    """Whether the translations are to be put in capitals."""
    pieces: int
    """The number of pieces of `text`, </s> included."""


def _to_ask(translator: Translator, sentence: str, pieces: int) -> _Question:
    if other := recased(translator.tokenizer, sentence):
        return _Question(*other, *_pieces(translator, [other.text]))
    return _Question(sentence, in_capitals=False, pieces=pieces)


def _sound(
    translator: Translator, asked: _Question, found: Sequence[Translation]
) -> list[Translation]:
    """The translations without flaws, put in capitals if `asked` says so."""
    sound = [t for t in found if not _flaws(translator, asked.text, asked.pieces, t.text)]
    return [replace(t, text=t.text.upper()) for t in sound] if asked.in_capitals else sound


def _pieces(translator: Translator, sentences: Sequence[str]) -> list[int]:
    """The number of pieces of each sentence, </s> included."""
    return [len(ids) + 1 for ids in translator.tokenizer.encode(sentences)]


def _better(first: Mended, sound: list[Translation]) -> Mended:
    """A result with the `sound` translations, at most as many as `first` has.

    If `sound` is empty, the result has the translations and flaws of `first`.
    """
    if sound:
        return Mended(sound[: len(first.translations)], retried=True)
    return replace(first, retried=True)


def _flaws(
    translator: Translator, source: str, source_pieces: int, output: str
) -> tuple[Flaw, ...]:
    """The flaws of a translation; a blank line has none, as it is not translated."""
    if source_pieces == 1 or not source.strip():
        return ()
    output_pieces = 1 + len(translator.tokenizer.encode([output], "target")[0])
    limit = None
    if source_pieces <= translator.longest:
        limit = min(source_pieces + translator.recipe.max_extra, translator.model.longest)
    text = source.removeprefix(translator.tokenizer.prefix(source))
    return tuple(
        flaws(text, output, source_pieces=source_pieces, output_pieces=output_pieces, limit=limit)
    )
