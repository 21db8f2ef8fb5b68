"""The non-ASCII characters of the source sentences in training data, for a model's manifest."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from regard.data.pair_source import PairSource
from regard.text.plain import texts_of_pieces
from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import Tokenizer

MOST_SENTENCES = 50_000
"""At most this many source sentences are read, evenly spread over the text."""
SOURCE_CHARACTERS = "source_characters"
"""The key in a manifest for the result of `source_characters`."""


def source_characters(pairs: PairSource, tokenizer: AnyTokenizer) -> str | None:
    """The non-ASCII characters in the pieces of source sentences, in the order of code points.

    A character is left out if no piece contains it whole: the tokenizer spells it byte by byte. At
    most MOST_SENTENCES sentences are read. Returns None for a foreign tokenizer.
    """
    if not isinstance(tokenizer, Tokenizer):
        return None
    count = min(len(pairs), MOST_SENTENCES)
    sentences = [pairs.source(i * len(pairs) // count) for i in range(count)]
    pieces = texts_of_pieces(tokenizer, np.unique(np.concatenate(sentences)).tolist())
    return "".join(sorted(char for char in set().union(*pieces) if not char.isascii()))


def characters_in(manifest: Mapping[str, Any]) -> str | None:
    """The characters in a model's manifest; None if it has no such entry, as in older manifests."""
    characters = manifest.get(SOURCE_CHARACTERS)
    return characters if isinstance(characters, str) else None
