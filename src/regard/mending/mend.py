"""Search again for translations that look wrong, and report the flaws that remain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regard.mending.capitals import in_usual_letters
from regard.mending.flaws import Flaw, flaws
from regard.mending.retry import search_again
from regard.translation import Translation, Translator


@dataclass(frozen=True)
class Mended:
    """The translations of a sentence, found by the first search or by a second search."""

    translations: list[Translation]
    """At least one translation; the best comes first. All scores use the length penalty of the
    first search. Translations of the second search stay in the order of that search, whose length
    penalty may be another one."""
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
    with their flaws. A sentence that the translator has split is not searched for again. If `retry`
    is False, there is no second search.

    A sentence with many capitals that do not suit the vocabulary is always searched for again, with
    fewer of them. If all its letters are capitals, the translations found are put in capitals, too.
    """
    sentences = list(map(translator.plain, sentences))
    results = [
        Mended(best, _flaws(translator, sentence, pieces, best[0].text))
        for sentence, pieces, best in zip(
            sentences, _pieces(translator, sentences), found, strict=True
        )
    ]
    if not retry:
        return results
    usual = [in_usual_letters(translator.tokenizer, sentence) for sentence in sentences]
    wrong = [i for i, it in enumerate(results) if it.flaws or usual[i]]
    texts = [it.text if (it := usual[i]) else sentences[i] for i in wrong]
    asked = [
        (i, text, pieces)
        for i, text, pieces in zip(wrong, texts, _pieces(translator, texts), strict=True)
        if pieces <= translator.longest
    ]
    again = search_again(translator, [text for _, text, _ in asked]) if asked else []
    for (i, text, pieces), others in zip(asked, again, strict=True):
        sound = [t for t in others if not _flaws(translator, text, pieces, t.text)]
        if (it := usual[i]) and it.from_capitals:
            sound = [replace(t, text=t.text.upper()) for t in sound]
        results[i] = _better(results[i], sound)
    return results


def _pieces(translator: Translator, sentences: Sequence[str]) -> list[int]:
    """The number of pieces of each sentence, </s> included."""
    return [len(ids) + 1 for ids in translator.tokenizer.encode(sentences)]


def _better(first: Mended, sound: list[Translation]) -> Mended:
    """The `sound` translations, at most as many as `first` has; if none, those of `first`."""
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
