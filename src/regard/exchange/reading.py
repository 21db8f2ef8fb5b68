"""Read the files of foreign models, which anybody may have made: numbers and text, never code.

Every file must be a regular file, and is read without running code. Text beyond a fixed length is
refused, and so are tensors that need much more memory than their file.
"""

import argparse
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import MissingExtra, ModelError
from regard.files.regular import COPY_AGAIN, checksum, open_regular, read_regular, reason
from regard.files.tensors import read_tensors

LONGEST_CONFIG = 2**18
"""A configuration of more bytes (JSON) or more characters (YAML) than this is refused."""
LONGEST_TEXT = 2**26
"""A vocabulary, or another text file, of more bytes than this is refused."""
_MOST_BRACKETS = 1000
"""YAML with more opening brackets and braces than this is refused."""
_SHARED = 8
"""Tensors of a file may share storage, and so have more bytes together than the file. If they have
more than this many times the bytes of the file, they are refused."""


def text_of_file(path: Path, longest: int = LONGEST_TEXT) -> str:
    """The text of a UTF-8 file of at most `longest` bytes; raises ModelError for any other file."""
    try:
        return read_regular(path, longest).decode()
    except UnicodeDecodeError:
        raise ModelError(f"{path}: not UTF-8 text: {COPY_AGAIN}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {reason(error)}") from None


def checksum_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits.

    Raises ModelError if the file is missing, cannot be read, or is not a regular file.
    """
    try:
        return checksum(path)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {reason(error)}") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file, without its null entries; objects inside it keep null entries.

    Raises ModelError if the file cannot be read, or does not hold an object.
    """
    try:
        content = json.loads(text_of_file(path, LONGEST_CONFIG))
    except RecursionError:
        raise ModelError(f"{path}: nested too deep: not a configuration") from None
    except ValueError as error:
        raise ModelError(f"{path}: damaged, or not JSON: {error}: {COPY_AGAIN}") from None
    return _as_object(content, path)


def parse_yaml(text: str, where: Path) -> dict[str, Any]:
    """The object that YAML describes, without its null entries; no code is executed.

    Objects inside the object keep null entries. Raises ModelError, which names the file `where`, if
    the text does not describe an object, is too long or too deeply nested, or has YAML aliases.
    With aliases, a few lines can describe an object that fills the memory. Raises MissingExtra if
    PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError:
        raise MissingExtra("reading YAML", "exchange") from None
    if len(text) > LONGEST_CONFIG:
        raise ModelError(f"{where}: its configuration has more than {LONGEST_CONFIG:,} characters")
    if text.count("[") + text.count("{") > _MOST_BRACKETS:  # parsing time is quadratic in depth
        raise ModelError(f"{where}: nested too deep: not a configuration")
    try:
        has_aliases = any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text))
        content = None if has_aliases else yaml.safe_load(text)
    except (RecursionError, MemoryError):
        raise ModelError(f"{where}: nested too deep: not a configuration") from None
    except Exception as error:  # a YAML value that does not fit its tag can raise any exception
        raise ModelError(f"{where}: damaged, or not YAML: {error!s:.200}") from None
    if has_aliases:
        raise ModelError(f"{where}: its YAML has aliases (*name): write them out")
    return _as_object(content, where)


def _as_object(content: Any, where: Path) -> dict[str, Any]:
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        kind = type(content).__name__
        raise ModelError(f"{where}: not a configuration: an object of keys is needed, not {kind}")
    return {key: value for key, value in content.items() if value is not None}


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file.

    Raises ModelError if the file is missing or damaged, or cannot be read.
    """
    return _dense(read_tensors(path), path)


def read_pickled(path: Path) -> Any:
    """The content that `torch.save` wrote to a file: tensors, numbers, text, lists, dictionaries.

    The file may also hold an `argparse.Namespace`, and what else `torch.load` allows with
    `weights_only`, such as tuples and dtypes. Raises ModelError if the file is missing, damaged or
    compressed, or if it holds any other object, because such an object could run code.
    """
    try:
        with open_regular(path) as file:
            _refuse_compressed(path)
            with torch.serialization.safe_globals([argparse.Namespace]):
                content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(f"{path}: {_unpickled(error)}") from None
    except (RecursionError, MemoryError):
        raise ModelError(f"{path}: damaged: it does not fit the memory: {COPY_AGAIN}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {reason(error)}: {COPY_AGAIN}") from None
    except Exception as error:  # a damaged file can raise any exception
        raise ModelError(
            f"{path}: damaged, or not made by torch.save: {str(error).partition(chr(10))[0]:.100}: "
            f"{COPY_AGAIN}"
        ) from None
    return content


def tensors_of(content: Any, path: Path) -> dict[str, Tensor]:
    """The tensors of the state dict `content`, read from `path`.

    Raises ModelError if `content` is no state dict, or has sparse, quantised or oversized tensors.
    """
    if not isinstance(content, dict) or not content:
        kind = type(content).__name__
        raise ModelError(f"{path}: not a state dict: names and tensors are needed, not {kind}")
    for name, value in content.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise ModelError(
                f"{path}: not a state dict: {name!s:.80} is {type(value).__name__}, no tensor"
            )
    return _dense(content, path)


def read_npz(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a .npz file.

    Raises ModelError if the file is missing, damaged or compressed, is no .npz file, or holds
    Python objects.
    """
    archive_begins = True
    try:
        with open_regular(path) as file:
            archive_begins = file.peek(2).startswith(b"PK")
            _refuse_compressed(path)
            with np.load(file, allow_pickle=False) as archive:
                if not isinstance(archive, np.lib.npyio.NpzFile):
                    raise ValueError("it is no .npz file")
                return {name: archive[name] for name in archive.files}
    except MemoryError:
        raise ModelError(f"{path}: damaged: it does not fit the memory: {COPY_AGAIN}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {reason(error)}: {COPY_AGAIN}") from None
    except Exception as error:  # a damaged file can raise any exception
        if not archive_begins:
            raise ModelError(f"{path}: not a .npz file: name the model of marian-nmt") from None
        raise ModelError(f"{path}: damaged, or not .npz: {error!s:.100}: {COPY_AGAIN}") from None


def _refuse_compressed(path: Path) -> None:
    """Raise ValueError for a compressed archive, because a small archive could fill the memory."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
                raise ValueError("it is compressed: save it without compression")


def _unpickled(error: pickle.UnpicklingError) -> str:
    """The reason why a pickle is refused, for a message.

    If `error` names a function or class that the pickle would call, the reason contains this name.
    """
    text = str(error)
    named = text.partition("GLOBAL ")[2].partition(" ")[0]
    if named:
        return (
            f"holds more than numbers and text ({named:.80}), which would be run as code: save its "
            "state dict alone"
        )
    return f"damaged, or not made by torch.save: {COPY_AGAIN}"


def _dense(tensors: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return the tensors; raise ModelError for sparse, quantised or oversized ones.

    One tensor may have at most as many bytes as the file; all tensors together may have at most
    `_SHARED` times as many bytes as the file.
    """
    size, shown = path.stat().st_size, 0
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise ModelError(f"{path}: {name:.80} is a sparse or quantised tensor: save it densely")
        one = tensor.numel() * tensor.element_size()
        shown += one
        if one > size or shown > _SHARED * size:
            raise ModelError(f"{path}: {name:.80} shows more numbers than the file has")
    return tensors
