"""A tokenizer that is read from a tokenizer.json of the library `tokenizers`.

The library is at https://pypi.org/project/tokenizers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import tokenizers

from regard.errors import ModelError
from regard.sections import Section
from regard.text.foreign.base import ForeignTokenizer
from regard.text.foreign.bounds import refuse_endless
from regard.text.foreign.files import Original, order_by_names, read_json, read_original
from regard.text.foreign.order import Specials
from regard.text.protocol import SideName
from regard.text.tokenizer import MOST_ENTRIES

LONGEST_AT_ONCE = 2000
"""A line of more characters than this is cut, before a space if possible, and encoded in parts."""


class LibrarySettings(Section):
    """An empty section, because the library's own file has all settings."""


class LibraryTokenizer(ForeignTokenizer[LibrarySettings]):
    """Tokenizes both sides by one tokenizer.json of the library, or each side by its own.

    The file's rules for adding special symbols to a line, for padding and for truncation are not
    used. If a piece of the text is a special symbol, the piece is left out. Encoding and decoding
    raise ModelError if the library fails.
    """

    kind = "library"
    needed = ("library.json",)
    allowed = ("library.json", "target_library.json")
    settings_type = LibrarySettings

    @classmethod
    def read(
        cls,
        source: str | Path,
        target: str | Path | None = None,
        *,
        specials: Specials | None = None,
        source_specials: Specials | None = None,
        size: int | None = None,
        source_size: int | None = None,
    ) -> Self:
        """Read one tokenizer.json for both sides, or one for each side.

        `specials` and `size` describe the target; if there is one file, they describe both sides.
        `source_specials` and `source_size` describe the source, if there are two files. By default,
        special symbols are looked up by the names <pad>, <s> and </s>, and the size follows from
        the largest id. Raises ModelError if a file is missing or damaged, has no </s>, might make
        the library run for ever or fill the memory, or does not fit the sizes.
        """
        files = {"library.json": read_original(source)}
        if target is not None:
            files["target_library.json"] = read_original(target)
        last = files.get("target_library.json", files["library.json"])
        order, source_order = order_by_names(_entries(last), specials, size), None
        if target is not None:
            known = _entries(files["library.json"])
            source_order = order_by_names(known, source_specials, source_size)
        return cls(order, source_order, LibrarySettings(), files)

    def _open(self) -> None:
        source = self.files["library.json"]
        target = self.files.get("target_library.json", source)
        one = _library(source)
        other = one if target is source else _library(target)
        self._libraries: dict[SideName, tokenizers.Tokenizer] = {"source": one, "target": other}
        for (side, library), file in zip(self._libraries.items(), (source, target), strict=True):
            largest, size = max(library.get_vocab().values(), default=0), self.order_of(side).size
            if largest >= size:
                raise ModelError(
                    f"{file.path}: has the id {largest:,}, and the model has {size:,} entries: it "
                    "is the tokenizer of another model"
                )

    def _encoded(self, lines: Sequence[str], side: SideName) -> Iterator[list[int]]:
        library, order = self._libraries[side], self.order_of(side)
        ours, specials = order.ids.tolist(), set(order.specials)
        for line in lines:
            parts = _parts(line) if len(line) > LONGEST_AT_ONCE else [line]
            yield [
                ours[i]
                for part in parts
                for i in _guarded(library.encode, part, add_special_tokens=False).ids
                if i not in specials
            ]

    def _joined(self, foreign: list[int], side: SideName) -> str:
        library = self._libraries[side]
        known = [i for i in foreign if library.id_to_token(i) is not None]
        return str(_guarded(library.decode, known, skip_special_tokens=True))

    def _pieces(self, foreign: list[int], side: SideName) -> list[str]:
        return [self._libraries[side].id_to_token(i) or "" for i in foreign]

    def _named(self, foreign: list[int], side: SideName) -> list[str]:
        """The text of each piece.

        A piece is decoded with a letter before it, because some decoders remove a space at the
        start of a text.
        """
        library = self._libraries[side]
        before = _guarded(library.encode, "a", add_special_tokens=False).ids
        letter = str(_guarded(library.decode, before))
        texts = [str(_guarded(library.decode, [*before, i])) for i in foreign]
        return [text.removeprefix(letter) for text in texts]


def _guarded(function: Any, *args: Any, **options: Any) -> Any:
    """Call a function of the library and return its result; any error becomes a ModelError.

    A panic in the library's Rust code is a BaseException, but not an Exception. Therefore, every
    BaseException is caught except KeyboardInterrupt, SystemExit and MemoryError.
    """
    try:
        return function(*args, **options)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        raise ModelError(
            f"the tokenizer cannot read or write this text ({type(error).__name__}): it is damaged"
        ) from None


def _entries(file: Original) -> Mapping[str, int]:
    return _library(file).get_vocab()


def _library(file: Original) -> tokenizers.Tokenizer:
    """The tokenizer in a file.

    Raises ModelError if the file is damaged, has no entries or more than MOST_ENTRIES, or has
    rules that might run for ever or fill the memory.
    """
    content = read_json(file)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise ModelError(f"{file.path}: damaged, or not a tokenizer.json of the tokenizers library")
    refuse_endless(content, file.path)
    content |= {"truncation": None, "padding": None, "post_processor": None}
    try:
        library = tokenizers.Tokenizer.from_str(json.dumps(content))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic in the library's Rust code is not an Exception
        problem = " ".join(str(error).split())
        raise ModelError(
            f"{file.path}: damaged, or not a tokenizer.json of the tokenizers library: "
            f"{problem:.200}"
        ) from None
    entries = library.get_vocab()
    if not entries or len(entries) > MOST_ENTRIES or max(entries.values()) >= MOST_ENTRIES:
        raise ModelError(f"{file.path}: it has no entries, or more than {MOST_ENTRIES:,}")
    library.encode_special_tokens = True  # a typed "</s>" is four characters of text
    return library


def _parts(line: str) -> Iterator[str]:
    """Cut a line into parts of at most LONGEST_AT_ONCE characters, if possible before a space."""
    while len(line) > LONGEST_AT_ONCE:
        end = line.rfind(" ", 1, LONGEST_AT_ONCE)
        end = LONGEST_AT_ONCE if end < 1 else end
        yield line[:end]
        line = line[end:]
    yield line
