"""Open a tokenizer of any kind: regard's own, or a foreign tokenizer, made by another system."""

import json
import reprlib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from regard.errors import ModelError
from regard.files.regular import COPY_AGAIN
from regard.text.foreign.base import Description, ForeignTokenizer
from regard.text.foreign.files import Original, read_original
from regard.text.foreign.library import LibraryTokenizer
from regard.text.foreign.moses import MosesTokenizer
from regard.text.foreign.sentence_pieces import SentencePieceTokenizer
from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import Tokenizer

LONGEST_DESCRIPTION = 2**20
"""The most bytes that the tokenizer.json of a foreign tokenizer may have."""
_FOREIGN: tuple[type[ForeignTokenizer[Any]], ...] = (
    SentencePieceTokenizer,
    MosesTokenizer,
    LibraryTokenizer,
)
_KINDS = {kind.kind: kind for kind in _FOREIGN}
ORIGINALS = frozenset(name for kind in _FOREIGN for name in kind.allowed)
"""The names of all files that may be beside the tokenizer.json of a foreign tokenizer."""


def open_tokenizer(path: str | Path) -> AnyTokenizer:
    """Open a tokenizer; `path` is its tokenizer.json, or the directory that contains the file.

    A foreign tokenizer needs the files beside its tokenizer.json, too. Raises ModelError if a file
    is missing or damaged, if regard did not write tokenizer.json, or if this version of regard does
    not know the tokenizer's kind. Raises MissingExtra if a library that the tokenizer needs is not
    installed.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "tokenizer.json"
    foreign = _description(path)
    if foreign is None:
        return Tokenizer.load(path)
    kind = _KINDS[foreign.kind]
    files = {name: _verified(path.parent / name, sha) for name, sha in foreign.files.items()}
    try:
        settings = kind.settings_type.model_validate_json(json.dumps(foreign.settings))
    except ValidationError as error:
        raise _refusal(path, error) from None
    return kind(foreign.order, foreign.source_order, settings, files)


def open_own_tokenizer(path: str | Path, needed_for: str, remedy: str) -> Tokenizer:
    """Open a tokenizer that must be regard's own; raises ModelError for a foreign tokenizer.

    The error's message contains `needed_for`, which says what needs regard's own tokenizer, and
    `remedy`, which says what the user can do. Also raises the errors of `open_tokenizer`.
    """
    tokenizer = open_tokenizer(path)
    if not isinstance(tokenizer, Tokenizer):
        raise ModelError(
            f"{path}: is a tokenizer of another system, and {needed_for} needs one that regard "
            f"learned: {remedy}"
        )
    return tokenizer


def tokenizer_files(directory: Path) -> list[str]:
    """The names of all files of the tokenizer in a directory; the first is tokenizer.json.

    Raises ModelError if tokenizer.json describes a foreign tokenizer and is damaged, or if this
    version of regard does not know the tokenizer's kind.
    """
    foreign = _description(directory / "tokenizer.json")
    return ["tokenizer.json", *(foreign.files if foreign else ())]


def _description(path: Path) -> Description | None:
    """The content of a foreign tokenizer's tokenizer.json; None for any other file.

    Raises ModelError if the tokenizer's kind is unknown, or the content is damaged.
    """
    try:
        if not path.is_file() or path.stat().st_size > LONGEST_DESCRIPTION:
            return None
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None  # `Tokenizer.load` will raise the error for a bad file
    if not isinstance(content, dict) or "kind" not in content:
        return None
    if content["kind"] not in list(_KINDS):  # the value may be of any type, such as a list
        raise ModelError(
            f"{path}: a tokenizer of kind {reprlib.repr(content['kind'])}, and this version of "
            f"regard reads {', '.join(_KINDS)}: use the version that wrote it"
        )
    try:
        description = Description.model_validate_json(json.dumps(content))
    except ValidationError as error:
        raise _refusal(path, error) from None
    kind = _KINDS[description.kind]
    if not set(kind.needed) <= description.files.keys() <= set(kind.allowed):
        raise ModelError(f"{path}: lists other files than a tokenizer of this kind has")
    return description


def _refusal(path: Path, error: ValidationError) -> ModelError:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return ModelError(f"{path}: damaged: {where}: {first['msg']}: {COPY_AGAIN}")


def _verified(path: Path, expected: str) -> Original:
    file = read_original(path)
    if file.checksum != expected:
        raise ModelError(f"{path}: damaged: its checksum does not match: {COPY_AGAIN}")
    return file
