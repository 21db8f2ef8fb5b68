"""The pieces of a sentence as a reader sees them, and the words that they make up."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from regard.errors import printable
from regard.text.tokenizer import EOS, SPECIAL, Tokenizer

Words = list[list[int]]
"""The places of the pieces of each word."""


def spelled(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """The text of each piece, with the space before a word; <s> and </s> by these names.

    A piece that is a part of a character shows as U+FFFD.
    """
    before = tokenizer.encode(["a"])[0]  # a text's first space would be taken off
    texts = tokenizer.decode([[*before, i] for i in ids])
    return [
        SPECIAL[i] if i <= EOS else text.removeprefix("a")
        for i, text in zip(ids, texts, strict=True)
    ]


def words(pieces: Sequence[str]) -> Words:
    """A word begins at a space; punctuation around it, <s> and </s> are words of their own."""
    found: Words = []
    for place, piece in enumerate(pieces):
        if not found or piece.startswith(" ") or {piece, pieces[place - 1]} & set(SPECIAL):
            found.append([])
        found[-1].append(place)
    return [part for word in found for part in _without_punctuation(word, pieces)]


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
    """One label for each piece; a middle dot marks those that go on inside a word."""
    return [
        ("·" if place else "") + _shown(pieces[piece])
        for word in words(pieces)
        for place, piece in enumerate(word)
    ]


def word_labels(tokenizer: Tokenizer, ids: Sequence[int], groups: Words) -> list[str]:
    """One label for each word."""
    texts = tokenizer.decode([[ids[i] for i in group] for group in groups])
    return [
        SPECIAL[ids[group[0]]] if ids[group[0]] <= EOS else _shown(text)
        for group, text in zip(groups, texts, strict=True)
    ]


def _shown(text: str) -> str:
    return printable(text.strip()) or "␣"


def merged(
    weights: Float[NDArray[np.float32], "*heads queries keys"], queries: Words, keys: Words
) -> Float[NDArray[np.float32], "*heads words others"]:
    """Attention between words: from a word the mean of its pieces, to a word their sum.

    So rows still sum to 1.
    """
    mean, total = _belonging(queries), _belonging(keys)
    mean /= mean.sum(1, keepdims=True)
    return (mean @ weights @ total.T).astype(np.float32)


def _belonging(groups: Words) -> NDArray[np.float32]:
    found = np.zeros((len(groups), sum(map(len, groups))), np.float32)
    for word, places in enumerate(groups):
        found[word, places] = 1
    return found
