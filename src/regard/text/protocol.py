"""The protocol of tokenizers: what the rest of regard asks of one, of our own or a foreign one.

Every tokenizer has ids 0 = <pad>, 1 = <s> and 2 = </s>. Source and target may have vocabularies
of their own; a tokenizer with one shared vocabulary answers the same for both.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

SideName = Literal["source", "target"]


class AnyTokenizer(Protocol):
    """Encodes source and target text as ids, and decodes ids of either."""

    @property
    def size(self) -> int:
        """Entries of the target's vocabulary, which is the output's."""

    @property
    def source_size(self) -> int:
        """Entries of the source's vocabulary: `size` if it is shared."""

    @property
    def shared(self) -> bool:
        """Whether one vocabulary serves source and target."""

    @property
    def fingerprint(self) -> str:
        """A checksum by which two tokenizers, with both sides of each, can be compared."""

    @property
    def symbols(self) -> Mapping[str, int]:
        """Ids of symbols that no text is encoded as, such as `(NP` in trees; often empty."""

    @property
    def foreign_ids(self) -> list[int] | None:
        """For each id of the target, its id in the foreign vocabulary, or -1 if it has none there.

        None if the tokenizer is not foreign.
        """

    @property
    def source_foreign_ids(self) -> list[int] | None:
        """`foreign_ids` for the ids of the source; the same list if the vocabulary is shared."""

    def prefix(self, line: str) -> str:
        """The beginning of a source line that is meant for the model alone, such as `>>de<<`.

        It is no part of the sentence; each part of a sentence that is divided needs it.
        """

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line of source text, without <s> and </s>; raises DataError."""

    def encode_arrays(self, lines: Sequence[str]) -> list[NDArray[np.uint32]]:
        """`encode` for a whole corpus, with the ids of each line as an array."""

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line of target text, without <s> and </s>; raises DataError."""

    def encode_target_arrays(self, lines: Sequence[str]) -> list[NDArray[np.uint32]]:
        """`encode_target` for a whole corpus, with the ids of each line as an array."""

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of the target's ids; <pad>, <s>, </s> are ignored."""

    def decode_source(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of the source's ids, for views of what a model reads."""

    def names(self, ids: Sequence[int], side: SideName) -> list[str]:
        """The text of each piece of a sentence, with a space before it where it begins a word.

        <pad>, <s> and </s> are named so; a part of a character becomes U+FFFD.
        """

    def save(self, path: Path) -> None:
        """Write tokenizer.json at `path`, and the other files of the tokenizer beside it."""
