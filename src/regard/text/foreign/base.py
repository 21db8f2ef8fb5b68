"""A foreign tokenizer: the files of another system, and a tokenizer.json that describes them.

    {"kind": "sentencepiece", "order": {"size": 5, "specials": [-1, 4, 0]}, "source_order": null,
     "settings": {...}, "files": {"source.spm": "SHA-256", ...}}

tokenizer.json has the checksums of the other system's files, which are called original files. A
manifest with the checksum of tokenizer.json therefore protects the original files, too.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.errors import ModelError
from regard.files.whole import new_file
from regard.sections import Section
from regard.text.foreign.files import Original
from regard.text.foreign.order import IdOrder
from regard.text.protocol import SideName
from regard.text.tokenizer import EOS, SPECIAL
from regard.text.words import refuse_surrogates


class Description(Section):
    """The content of the tokenizer.json of a foreign tokenizer."""

    kind: str
    order: IdOrder
    source_order: IdOrder | None
    settings: dict[str, Any]
    files: dict[str, str]


LeftOutIfFalse = Annotated[bool, Field(exclude_if=lambda value: not value)]
"""A setting that is written to tokenizer.json only if the setting is true. So a tokenizer that was
saved before the setting existed keeps its fingerprint."""
S = TypeVar("S", bound=Section)


class ForeignTokenizer(ABC, Generic[S]):
    """The base class of all foreign tokenizers, with their ids, files, and names of pieces.

    A piece has two ids: "regard's id" is its id in a model of regard, and the "foreign id" is its
    id in the system that made the tokenizer. Text is never encoded as <pad>, <s> or </s>, not even
    a word of the text that is spelled like such a symbol.
    """

    kind: ClassVar[str]
    """The name of this kind of tokenizer in tokenizer.json."""
    needed: ClassVar[tuple[str, ...]]
    """Names of files that every tokenizer of this class has."""
    allowed: ClassVar[tuple[str, ...]]
    """Names of all files that a tokenizer of this class may have."""
    settings_type: ClassVar[type[Section]]

    def __init__(
        self,
        order: IdOrder,
        source_order: IdOrder | None,
        settings: S,
        files: Mapping[str, Original],
    ):
        """`source_order` is None if one vocabulary serves both sides.

        Raises ModelError if the files are damaged or do not fit together, MissingExtra if a library
        that reads them is not installed.
        """
        self.order, self.source_order = order, source_order
        self.settings, self.files = settings, dict(files)
        for one in (order, source_order):
            if one and (problem := one.misfit()):
                raise ModelError(f"{self.files[self.needed[0]].path}: {problem}")
        self._open()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.order, self.source_order, self.settings, self.files)

    @abstractmethod
    def _open(self) -> None:
        """Read the files; raises ModelError or MissingExtra."""

    @abstractmethod
    def _encoded(self, lines: Sequence[str], side: SideName) -> Iterable[list[int]]:
        """Encode each line as a list of regard's ids."""

    @abstractmethod
    def _joined(self, foreign: list[int], side: SideName) -> str:
        """Decode foreign ids to text."""

    @abstractmethod
    def _pieces(self, foreign: list[int], side: SideName) -> list[str]:
        """The pieces with these foreign ids, as the foreign system spells them."""

    @abstractmethod
    def _named(self, foreign: list[int], side: SideName) -> list[str]:
        """The names of the pieces with these foreign ids, as `AnyTokenizer.names` gives them."""

    @property
    def size(self) -> int:
        """The number of entries of the target's vocabulary."""
        return len(self.order.foreign_ids)

    @property
    def source_size(self) -> int:
        """The number of entries of the source's vocabulary."""
        return len(self.order_of("source").foreign_ids)

    @property
    def shared(self) -> bool:
        """Whether one vocabulary serves source and target."""
        return self.source_order is None

    @property
    def symbols(self) -> dict[str, int]:
        """An empty map, because a foreign tokenizer has no symbols for trees."""
        return {}

    def unknown(self, side: SideName) -> int | None:
        """regard's id of the piece that stands for unknown text; None if there is no such id."""
        return None

    def spelled(self, side: SideName) -> list[str]:
        """The pieces of a side in the order of regard's ids, as the foreign system spells them.

        Ids 0, 1 and 2 are <pad>, <s> and </s>. The list has "" for an id without a piece.
        """
        return [*SPECIAL, *self._pieces(self.order_of(side).foreign_ids[EOS + 1 :], side)]

    def order_of(self, side: SideName) -> IdOrder:
        """The `IdOrder` of the source or the target."""
        return self.source_order if side == "source" and self.source_order else self.order

    def prefix(self, line: str) -> str:
        """An empty string; a subclass may return a code that begins `line`, such as `>>de<<`."""
        return ""

    def encode(self, lines: Sequence[str], side: SideName = "source") -> list[list[int]]:
        """The ids of each line of source or target text; raises DataError for a lone surrogate."""
        refuse_surrogates(lines)
        return list(self._encoded(lines, side))

    def encode_arrays(
        self, lines: Sequence[str], side: SideName = "source"
    ) -> list[NDArray[np.uint32]]:
        """The ids of each line as an array; raises DataError as `encode` does."""
        return [np.array(ids, np.uint32) for ids in self.encode(lines, side)]

    def decode(self, ids: Sequence[Sequence[int]], side: SideName = "target") -> list[str]:
        """The text of each list of source or target ids, as the foreign system joins pieces."""
        return [self._joined(self._foreign(row, side), side) for row in ids]

    def _foreign(self, row: Iterable[int], side: SideName) -> list[int]:
        known = self.order_of(side).foreign_ids
        return [known[int(i)] for i in row if EOS < i < len(known)]

    def names(self, ids: Sequence[int], side: SideName) -> list[str]:
        """The text of each piece, with a space before it if the piece begins a word.

        The name of an id beyond the vocabulary is empty.
        """
        named = iter(self._named(self._foreign(ids, side), side))
        entries = len(self.order_of(side).foreign_ids)
        return [SPECIAL[i] if i <= EOS else next(named) if i < entries else "" for i in ids]

    @cached_property
    def _description(self) -> bytes:
        description = Description(
            kind=self.kind,
            order=self.order,
            source_order=self.source_order,
            settings=self.settings.model_dump(mode="json"),
            files={name: file.checksum for name, file in sorted(self.files.items())},
        )
        return (description.model_dump_json(indent=1) + "\n").encode()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of tokenizer.json, which has the checksums of the other files."""
        return hashlib.sha256(self._description).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the original files into the folder of `path`, then tokenizer.json at `path`.

        Each file is written whole or not at all. Raises OSError.
        """
        for name, original in self.files.items():
            with new_file(Path(path).parent / name) as file:
                file.write(original.content)
        with new_file(Path(path)) as file:
            file.write(self._description)
