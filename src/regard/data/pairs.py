"""Prepared sentence pairs on disk (§5.1), memory-mapped, so that they may be larger than memory.

Each side of a split is two flat arrays. `ids` has all sentences end to end, each with its </s>.
`starts` has the index where each sentence begins, then the number of ids. Sentence i is
ids[starts[i] : starts[i + 1]].

    {train,valid}.{source,target}.{ids,starts}.npy    tokenizer.json    manifest.json
    valid.{source,target}.txt    the untokenised text, for BLEU; for a parser: sentences and trees
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError

from regard.errors import DataError
from regard.files.manifest import MANIFEST, read_manifest
from regard.files.regular import checksum
from regard.recipe import Recipe
from regard.text.opening import ORIGINALS
from regard.text.tokenizer import EOS

DATA_FORMAT = "regard prepared data, version 2"
SPLITS, SIDES = ("train", "valid"), ("source", "target")
FILES = frozenset(
    [
        f"{split}.{side}.{part}.npy"
        for split in SPLITS
        for side in SIDES
        for part in ("ids", "starts")
    ]
    + [f"valid.{side}.txt" for side in SIDES]
    + ["tokenizer.json", MANIFEST]
)
"""Names of all files of prepared data, except the files of another tool's tokenizer (ORIGINALS)."""
DECIDED = {
    "tokenizer": ("kind", "vocabulary"),
    "data": ("max_length", "max_ratio", "share", "deduplicate", "held_out", "recombined"),
}
"""For each section of a recipe: fields that, with task and seed, decide how data is prepared."""


class Pairs:
    """The sentence pairs of one split; each side is given by its two arrays, (ids, starts).

    `source_lengths` and `target_lengths` have the length of each sentence, </s> included.
    `fingerprint` is a checksum of the split as prepared, made from checksums in the manifest.
    """

    def __init__(
        self,
        source: tuple[NDArray[Any], NDArray[np.int64]],
        target: tuple[NDArray[Any], NDArray[np.int64]],
        fingerprint: str,
    ):
        self._source_ids, self._source_starts = source
        self._target_ids, self._target_starts = target
        self.source_lengths = np.diff(self._source_starts).astype(np.int32)
        self.target_lengths = np.diff(self._target_starts).astype(np.int32)
        self.fingerprint = fingerprint

    @classmethod
    def open(cls, directory: str | Path, split: str) -> Self:
        """Open the split "train" or "valid", and map its files into memory.

        Verifies the sizes of the files, the tokenizer's checksum, the number and bounds of the
        sentences, and the range of the ids. Raises DataError if a file is unusable or missing.
        """
        directory = Path(directory)
        manifest = prepared_manifest(directory)
        try:
            files, sizes = manifest["files"], _vocabularies(manifest)
            if _checksum(directory / "tokenizer.json") != files["tokenizer.json"]["sha256"]:
                raise DataError(
                    "is not the tokenizer that this data was prepared with: prepare the data again",
                    directory / "tokenizer.json",
                )
            names = [f"{split}.{side}" for side in SIDES]
            source, target = (
                _open_side(directory / name, files, size)
                for name, size in zip(names, sizes, strict=True)
            )
            if split == "valid":
                for name in names:
                    _refuse_resized(directory / f"{name}.txt", files)
            parts = [
                files[f"{name}.{part}.npy"]["sha256"]
                for name in names
                for part in ("ids", "starts")
            ]
        except (KeyError, TypeError):
            raise DataError(
                f"does not list the files of {split}: prepare the data again",
                directory / MANIFEST,
            ) from None
        if len(source[1]) != len(target[1]):
            raise DataError(
                f"{len(source[1]) - 1} {split} sources but {len(target[1]) - 1} targets: "
                "prepare the data again",
                directory,
            )
        return cls(source, target, hashlib.sha256("".join(parts).encode()).hexdigest())

    def __len__(self) -> int:
        return len(self._source_starts) - 1

    def source(self, i: int) -> NDArray[Any]:
        """Ids of source sentence i (from 0), </s> included."""
        return _sentence(self._source_ids, self._source_starts, i)

    def target(self, i: int) -> NDArray[Any]:
        """Ids of target sentence i (from 0), </s> included."""
        return _sentence(self._target_ids, self._target_starts, i)


class EncodedSentences(NamedTuple):
    """Sentences of one side as ids, laid end to end, each with its </s>."""

    ids: NDArray[Any]
    """[tokens] uint16 if the vocabulary has at most 65,536 entries, otherwise uint32."""
    lengths: NDArray[np.int64]
    """[sentences] Number of ids of each sentence, </s> included."""

    @classmethod
    def of(cls, sentences: Sequence[ArrayLike], vocabulary: int) -> EncodedSentences:
        """Join the ids of sentences, which have no </s>, into one array, and add </s> to each.

        `vocabulary` is the number of entries in the vocabulary of the ids.
        """
        rows = [np.asarray(ids, np.uint32) for ids in sentences]
        lengths = np.array([len(row) + 1 for row in rows], np.int64)
        ids = np.full(lengths.sum(), EOS, _id_type(vocabulary))
        inside = np.ones(len(ids), bool)
        inside[lengths.cumsum() - 1] = False
        ids[inside] = np.concatenate([np.zeros(0, np.uint32), *rows])
        return cls(ids, lengths)


class SideWriter:
    """Writes the sentences of one side of a split into two new files, and keeps none in memory.

    One file has the ids of all sentences, the other tells where each sentence starts.
    """

    def __init__(self, stem: Path, vocabulary: int):
        """Open both files, whose paths begin with `stem` (out/train.source); raises OSError."""
        self._ids = _Column(_part(stem, "ids"), _id_type(vocabulary))
        self._starts = _Column(_part(stem, "starts"), "<i8")
        self._starts.append(np.zeros(1, np.int64))

    @property
    def tokens(self) -> int:
        """The number of ids written so far, </s> included."""
        return self._ids.length

    def append(self, sentences: EncodedSentences) -> None:
        """Write these sentences after the earlier ones; raises OSError."""
        self._starts.append(sentences.lengths.cumsum() + self.tokens)
        self._ids.append(sentences.ids)

    def close(self) -> None:
        """Complete both files and close them; raises OSError."""
        try:
            self._ids.close()
        finally:
            self._starts.close()


class _Column:
    """A one-dimensional .npy file that grows; `close` writes its final length into the header."""

    def __init__(self, path: Path, dtype: str):
        self._file = path.open("wb")
        self._dtype = np.dtype(dtype)
        self.length = 0
        self._body = self._write_header()

    def append(self, values: NDArray[Any]) -> None:
        self._file.write(values.astype(self._dtype, copy=False).data)
        self.length += len(values)

    def close(self) -> None:
        try:
            self._file.seek(0)
            # numpy pads the header so that it keeps its size when the first axis grows.
            end = self._write_header()
            assert end == self._body
        finally:
            self._file.close()

    def _write_header(self) -> int:
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)
        return self._file.tell()


def _id_type(vocabulary: int) -> str:
    return "<u2" if vocabulary <= 2**16 else "<u4"


def prepared_manifest(directory: Path) -> dict[str, Any]:
    """The manifest of prepared data.

    Raises DataError if there is none, or if it is damaged, unreadable or of another version.
    """
    path = directory / MANIFEST
    if not path.is_file():
        raise DataError("is not prepared data: make it with `regard prepare`", directory)
    try:
        manifest = read_manifest(directory, own=True)
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError:
        raise DataError("is damaged: prepare the data again", path) from None
    if manifest.get("format") != DATA_FORMAT:
        raise DataError(
            f"is not the manifest of {DATA_FORMAT}, but perhaps of a model: name the directory "
            "that regard prepare made, or prepare the data again",
            path,
        )
    return manifest


def is_prepared(directory: Path) -> bool:
    """Whether the directory seems to hold prepared data, of any version; nothing is verified."""
    return (directory / "train.source.ids.npy").exists()


def _vocabularies(manifest: dict[str, Any]) -> tuple[int, int]:
    """The sizes of the source's and the target's vocabulary, in entries."""
    size: int = manifest["tokenizer"]["size"]
    return manifest["tokenizer"].get("source_size", size), size


def recipe_of(directory: Path) -> Recipe:
    """The recipe that the data was prepared with; raises DataError if the manifest is unusable."""
    try:
        return Recipe.model_validate(prepared_manifest(directory)["recipe"])
    except (KeyError, ValidationError):
        raise DataError("is damaged: prepare the data again", directory / MANIFEST) from None


def fields_of(directory: Path) -> list[str]:
    """The settings that the data was prepared with, as texts `section.key=value` for `Recipe.set`.

    The settings are the DECIDED fields and data.row_length. Raises DataError as `recipe_of` does.
    """
    made = recipe_of(directory).model_dump()
    fields = [(section, key) for section, keys in DECIDED.items() for key in keys]
    fields.append(("data", "row_length"))
    return [f"{section}.{key}={json.dumps(made[section][key])}" for section, key in fields]


def is_replaceable(directory: Path) -> bool:
    """Whether the directory holds prepared data of this version and nothing else."""
    try:
        prepared_manifest(directory)
    except DataError:
        return False
    return {path.name for path in directory.iterdir()} <= FILES | ORIGINALS


def _open_side(
    stem: Path, files: dict[str, Any], vocabulary: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    ids, starts = (_map(_part(stem, part), files) for part in ("ids", "starts"))
    whole = (
        ids.dtype in (np.uint16, np.uint32)
        and starts.dtype == np.int64
        and len(starts) > 1
        and starts[0] == 0
        and starts[-1] == len(ids)
        and bool((np.diff(starts) > 0).all())
        and ids[-1] == EOS
    )
    if not whole:
        raise DataError(
            "is damaged: the bounds of the sentences do not match the ids; prepare the data again",
            _part(stem, "starts"),
        )
    if ids.max() >= vocabulary:
        raise DataError(
            f"is damaged: it has the id {ids.max()}, but the vocabulary has {vocabulary} entries; "
            "prepare the data again",
            _part(stem, "ids"),
        )
    return ids, starts


def _map(path: Path, files: dict[str, Any]) -> NDArray[Any]:
    _refuse_resized(path, files)
    try:
        # Make a plain array over the mapped file: slicing an np.memmap takes ten times as long.
        mapped = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except OSError as error:
        raise _unreadable(path, error) from None
    except Exception:  # numpy parses the header as Python: a damaged header may raise any error
        raise DataError("is damaged: prepare the data again", path) from None
    if mapped.ndim != 1:
        raise DataError("is damaged: not a one-dimensional array; prepare the data again", path)
    return mapped


def _part(stem: Path, part: str) -> Path:
    return stem.with_name(f"{stem.name}.{part}.npy")


def _sentence(ids: NDArray[Any], starts: NDArray[np.int64], i: int) -> NDArray[Any]:
    if not 0 <= i < len(starts) - 1:
        raise IndexError(f"sentence {i} of {len(starts) - 1}")
    return ids[starts[i] : starts[i + 1]]


def _refuse_resized(path: Path, files: dict[str, Any]) -> None:
    wanted = files[path.name]["bytes"]
    try:
        found = path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from None
    if found != wanted:
        raise DataError(f"is damaged: {found} bytes, not {wanted}; prepare the data again", path)


def _checksum(path: Path) -> str:
    try:
        return checksum(path, follow_links=True)
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> DataError:
    problem = f"cannot be read: {error.strerror or error}: correct that, or prepare the data again"
    return DataError(problem, path)
