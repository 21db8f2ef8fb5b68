"""Read the files of foreign tokenizers, which anybody may have made."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import ModelError
from regard.files.regular import open_regular, reason
from regard.text.foreign.order import IdOrder, Specials
from regard.text.tokenizer import LARGEST_TOKENIZER, MOST_ENTRIES


class Original(NamedTuple):
    """The content of a file that a foreign system wrote, and its path, for error messages."""

    path: Path
    content: bytes

    @property
    def checksum(self) -> str:
        """SHA-256 of the content, in hexadecimal digits."""
        return hashlib.sha256(self.content).hexdigest()


def read_original(path: str | Path) -> Original:
    """Read a regular file of at most LARGEST_TOKENIZER bytes; raises ModelError."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            content = file.read(LARGEST_TOKENIZER + 1)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot read the tokenizer: {reason(error)}") from None
    if len(content) > LARGEST_TOKENIZER:
        raise ModelError(
            f"{path}: not a tokenizer: it has more than {LARGEST_TOKENIZER // 2**20} MiB"
        )
    return Original(path, content)


def read_json(file: Original) -> Any:
    """The content of a JSON file in which no object has a key twice; raises ModelError."""
    try:
        return json.loads(file.content.decode("utf-8"), object_pairs_hook=_without_repeats)
    except RecursionError:
        problem = "it is nested too deep"
    except UnicodeDecodeError:
        problem = "it is not UTF-8 text"
    except _RepeatedKeyError as error:
        problem = f"it has the key {error.args[0]!r:.80} twice"
    except ValueError:
        problem = "it is not JSON"
    raise ModelError(f"{file.path}: damaged, or not of a tokenizer: {problem}")


class _RepeatedKeyError(ValueError):
    pass


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _RepeatedKeyError(key)
        found[key] = value
    return found


def vocabulary_file(given: str | Path | Mapping[str, int], name: str) -> Original:
    """The vocabulary file at the path `given`, or a new one with the pieces and ids in `given`.

    `name` is the name of a new file, which is only in memory. Raises ModelError if the file cannot
    be read or has more than LARGEST_TOKENIZER bytes, or if a piece has a lone surrogate.
    """
    if not isinstance(given, Mapping):
        return read_original(given)
    try:
        return Original(Path(name), json.dumps(dict(given), ensure_ascii=False).encode())
    except UnicodeEncodeError:
        problem = "a piece has a lone surrogate, which is not a character: repair the vocabulary"
        raise ModelError(f"{name}: {problem}") from None


def read_vocabulary(file: Original) -> dict[str, int]:
    """The pieces in a JSON file and their ids.

    Raises ModelError if the file is damaged or has no pieces, or if an id occurs twice or is not a
    whole number from 0 to MOST_ENTRIES - 1.
    """
    vocabulary = read_json(file)
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise ModelError(f"{file.path}: not a vocabulary: it is no JSON object of pieces and ids")
    pieces: dict[int, str] = {}
    for piece, i in vocabulary.items():
        if type(i) is not int or not 0 <= i < MOST_ENTRIES:
            raise ModelError(
                f"{file.path}: the piece {piece!r:.80} has the id {i!r:.80}: an id is a whole "
                f"number from 0 to {MOST_ENTRIES - 1:,}"
            )
        if i in pieces:
            raise ModelError(
                f"{file.path}: the pieces {pieces[i]!r:.80} and {piece!r:.80} have the same id, {i}"
            )
        pieces[i] = piece
    return vocabulary


def order_by_names(
    known: Mapping[str, int], specials: Specials | None, size: int | None
) -> IdOrder:
    """The `IdOrder` of a vocabulary; `known` maps the pieces of the vocabulary to foreign ids.

    If `specials` is None, <pad>, <s> and </s> are looked up by name. If `size` is None, the size
    follows from the largest id. Raises ModelError for a size above MOST_ENTRIES.
    """
    if specials is None:
        specials = known.get("<pad>", -1), known.get("<s>", -1), known.get("</s>", -1)
    size = size or max(known.values()) + 1
    if size > MOST_ENTRIES:
        raise ModelError(
            f"the model has {size:,} entries in its vocabulary, and {MOST_ENTRIES:,} are allowed: "
            "choose another model"
        )
    return IdOrder(size=size, specials=specials)
