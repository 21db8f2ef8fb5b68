"""Show the sub-word pieces of a sentence, and group them into words."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from regard.errors import printable
from regard.text.protocol import AnyTokenizer, SideName
from regard.text.tokenizer import EOS, SPECIAL

Words = list[list[int]]
"""For each word, the positions of its pieces."""


def words(pieces: Sequence[str]) -> Words:
    """Group pieces, as `AnyTokenizer.names` gives them, into words at spaces.

    <s>, </s> and each piece of punctuation at either end of a word are words of their own.
    """
    return [part for word in between_spaces(pieces) for part in _without_punctuation(word, pieces)]


def between_spaces(pieces: Sequence[str]) -> Words:
    """Group pieces into words only at spaces; <s> and </s> are words of their own."""
    found: Words = []
    for place, piece in enumerate(pieces):
        if not found or piece.startswith(" ") or {piece, pieces[place - 1]} & set(SPECIAL):
            found.append([])
        found[-1].append(place)
    return found


def pieces_of_words(pieces: Sequence[str], text: str) -> Words | None:
    """Group the pieces of a text into the words of the text, which single blanks separate.

    Some tokenizers join words or divide them, so each piece is assigned to a word by its letters.
    If the pieces have other letters than the text, for example because a word is unknown, they are
    grouped at their own spaces. Returns None if the numbers of groups and words differ, or if a
    word has no piece.
    """
    given = [_letters(word) for word in text.split(" ")]
    found, ends, begin = [list[int]() for _ in given], list(accumulate(map(len, given))), 0
    if "".join(given) != "".join(map(_letters, pieces)):
        found = between_spaces(pieces)
        return found if len(found) == len(given) else None
    for place, piece in enumerate(pieces):
        found[min(bisect_right(ends, begin), len(ends) - 1)].append(place)
        begin += len(_letters(piece))
    return found if all(found) else None


def _letters(text: str) -> str:
    """The text in the form NFKD, casefolded and without blanks.

    So the result is the same if a tokenizer changes the case, the Unicode form or the blanks.
    """
    return "".join(unicodedata.normalize("NFKD", text).casefold().split())


def _without_punctuation(word: list[int], pieces: Sequence[str]) -> Words:
    inside = [place for place in word if not _is_punctuation(pieces[place].strip())]
    if not inside:
        return [[place] for place in word]
    first, last = word.index(inside[0]), word.index(inside[-1])
    before, after = word[:first], word[last + 1 :]
    return [*([p] for p in before), word[first : last + 1], *([p] for p in after)]


def _is_punctuation(text: str) -> bool:
    return bool(text) and all(unicodedata.category(c).startswith("P") for c in text)


def labels(pieces: Sequence[str]) -> list[str]:
    """A label for each piece; it begins with a middle dot if the piece continues a word."""
    return [
        ("·" if place else "") + _shown(pieces[piece])
        for word in words(pieces)
        for place, piece in enumerate(word)
    ]


def word_labels(
    tokenizer: AnyTokenizer, ids: Sequence[int], side: SideName, groups: Words
) -> list[str]:
    """A label for each word of a source or target.

    `groups` has the positions of each word's pieces; the function `words` returns such groups.
    """
    texts = tokenizer.decode([[ids[i] for i in group] for group in groups], side)
    return [
        SPECIAL[ids[group[0]]] if ids[group[0]] <= EOS else _shown(text)
        for group, text in zip(groups, texts, strict=True)
    ]


def _shown(text: str) -> str:
    return printable(text.strip()) or "␣"


def merged(
    weights: Float[NDArray[np.float32], "*heads queries keys"], queries: Words, keys: Words
) -> Float[NDArray[np.float32], "*heads words others"]:
    """Attention between words, from attention between pieces.

    The weights are averaged over the pieces of a query word, and summed over the pieces of a key
    word. So the weights of each query word still sum to 1.
    """
    mean, total = _belonging(queries), _belonging(keys)
    mean /= mean.sum(1, keepdims=True)
    return (mean @ weights @ total.T).astype(np.float32)


def _belonging(groups: Words) -> NDArray[np.float32]:
    """A matrix [words, pieces]: 1 where the piece belongs to the word, 0 elsewhere."""
    found = np.zeros((len(groups), sum(map(len, groups))), np.float32)
    for word, places in enumerate(groups):
        found[word, places] = 1
    return found
