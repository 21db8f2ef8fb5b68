"""The protocol of all tokenizers: regard's own, and foreign tokenizers, made by other systems.

Every tokenizer has ids 0 = <pad>, 1 = <s> and 2 = </s>. Source and target may have separate
vocabularies. With one shared vocabulary, a text has the same ids on both sides.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

SideName = Literal["source", "target"]


class AnyTokenizer(Protocol):
    """Encodes source and target text as ids, and decodes the ids of both sides.

    Encoding and decoding raise ModelError if the library of a foreign tokenizer fails.
    """

    @property
    def size(self) -> int:
        """The number of entries of the target's vocabulary: the width of the model's output."""

    @property
    def source_size(self) -> int:
        """The number of entries of the source's vocabulary: `size` if the vocabulary is shared."""

    @property
    def shared(self) -> bool:
        """Whether one vocabulary serves source and target."""

    @property
    def fingerprint(self) -> str:
        """A checksum of the whole tokenizer; equal tokenizers have equal checksums."""

    @property
    def symbols(self) -> Mapping[str, int]:
        """A map from the name of each symbol, such as `(NP` in trees, to its id.

        No text is encoded as a symbol. The map is empty if the tokenizer has no symbols.
        """

    def prefix(self, line: str) -> str:
        """The instruction to the model, such as `>>de<<`, with which a source line begins.

        Returns "" for a line without an instruction. The instruction is not part of the sentence.
        If a long sentence is divided, each part needs the instruction.
        """

    def encode(self, lines: Sequence[str], side: SideName = "source") -> list[list[int]]:
        """The ids of each line, without <s> and </s>.

        `side` says whether the lines are source or target text. Raises DataError for a lone
        surrogate, which is not a character.
        """

    def encode_arrays(
        self, lines: Sequence[str], side: SideName = "source"
    ) -> list[NDArray[np.uint32]]:
        """The ids that `encode` gives, as an array for each line; meant for a whole corpus."""

    def decode(self, ids: Sequence[Sequence[int]], side: SideName = "target") -> list[str]:
        """The text of each list of source or target ids.

        <pad>, <s>, </s> and ids beyond the vocabulary are ignored.
        """

    def names(self, ids: Sequence[int], side: SideName) -> list[str]:
        """The text of each piece of a sentence, with a space before it if the piece begins a word.

        The names of ids 0, 1 and 2 are <pad>, <s> and </s>; the name of an id beyond the vocabulary
        is empty. A piece that is only a part of a character becomes U+FFFD or, in SentencePiece,
        keeps its name, such as <0xE2>.
        """

    def save(self, path: Path) -> None:
        """Write tokenizer.json at `path`, and the tokenizer's other files beside it.

        Raises OSError if a file cannot be written.
        """
