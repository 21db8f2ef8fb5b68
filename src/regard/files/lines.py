"""Lines of text: the form in which corpora come, one sentence a line (§5.1).

Plain, .gz, .xz and .zst files are told apart by their first bytes, whatever their names; "-" is
standard input. Memory is bounded whatever the file: what is read ahead is one block, and a line
that has no end is refused.

Only a line feed ends a line. A carriage return before it is dropped, as is a byte order mark at the
start of the file; nothing else is changed.
"""

import gzip
import hashlib
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from regard.errors import DataError

LONGEST_LINE = 4 * 2**20
"""Bytes of the longest line that is read; a longer one means that the file holds no lines."""
BLOCK = 2**18
MOST_GROWTH, FREE_GROWTH = 200, 2**25
"""An archive that grows more than this many times, and by more than this many bytes, is no text."""
_ZSTD_INPUT = 2**10  # zstd can grow its input 32,000-fold, and gives all of it at once
_ZSTD_WINDOW = 2**27

_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"


def read_lines(path: str | Path, read: Callable[[int], object] | None = None) -> Iterator[str]:
    """The lines of a file, without their ends. The last one needs no line feed.

    `read` is told, block by block, how many bytes of the file as it is stored have been read.
    Raises DataError, with file and line, for a missing or unreadable file, a directory, text that
    is not UTF-8, binary content, a damaged or truncated archive, one that is all growth, and a line
    over LONGEST_LINE.
    """
    number = 0
    for block in read_blocks(path, read):
        lines = decode_lines(block, path, number)
        yield from lines
        number += len(lines)


def read_blocks(path: str | Path, read: Callable[[int], object] | None = None) -> Iterator[bytes]:
    """A file as blocks of whole lines, unpacked but undecoded; each ends with a line feed.

    `read` is told as in `read_lines`. Raises DataError for all but what `decode_lines` finds.
    """
    shown = _shown(path)
    number, rest = 0, b""
    for block in _blocks(path, shown, read):
        rest += block
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            number, rest = number + rest.count(b"\n"), rest[end:]
        if len(rest) > LONGEST_LINE:
            raise DataError(
                f"this line is longer than {LONGEST_LINE // 2**20} MiB: give text with one "
                "sentence a line",
                shown,
                number + 1,
            )
    if rest:
        yield rest + b"\n"


def decode_lines(block: bytes, path: str | Path, before: int) -> list[str]:
    """The lines of a block of `read_blocks`, where `before` lines of the file came earlier.

    Raises DataError, with file and line, for binary content and text that is not UTF-8.
    """
    if (at := block.find(b"\0")) >= 0:
        raise DataError(
            "has a NUL byte, so this is a binary file or UTF-16: give UTF-8 text (iconv -t utf-8)",
            _shown(path),
            before + block.count(b"\n", 0, at) + 1,
        )
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        at = block.rfind(b"\n", 0, error.start) + 1
        raise DataError(
            f"is not UTF-8 (byte 0x{block[error.start]:02X} at byte {error.start - at + 1} of the "
            "line): convert it with iconv -t utf-8, or mend the line",
            _shown(path),
            before + block.count(b"\n", 0, error.start) + 1,
        ) from None
    if before == 0:
        text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    return text[:-1].split("\n")


def refuse_unreadable(path: str | Path) -> None:
    """Raise DataError unless the path is a file that can be read, and read again."""
    if str(path) == "-":
        raise DataError("is read more than once here: save it in a file first", "standard input")
    with _one_sentence(str(path)), Path(path).open("rb"):
        if not Path(path).is_file():
            raise DataError("is read more than once here: save it in a regular file first", path)


def checksum(path: str | Path) -> str:
    """SHA-256 of a file as it is stored; raises DataError when it cannot be read."""
    with _one_sentence(str(path)), Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shown(path: str | Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _blocks(path: str | Path, shown: str, read: Callable[[int], object] | None) -> Iterator[bytes]:
    with _one_sentence(shown), _opened(path) as raw:
        reported = 0
        for block in _unpacked(raw, shown):
            yield block
            if read is not None and raw.seekable():
                read(raw.tell() - reported)
                reported = raw.tell()


def _opened(path: str | Path) -> AbstractContextManager[BufferedReader]:
    if str(path) != "-":
        return Path(path).open("rb")
    given: Any = sys.stdin.buffer
    return nullcontext(given if isinstance(given, BufferedReader) else BufferedReader(given))


def _unpacked(raw: BufferedReader, shown: str) -> Iterator[bytes]:
    head = raw.peek(len(_XZ))
    if head.startswith((_GZIP, _XZ, _ZSTD)):
        packed, size = _Counted(raw), 0
        for block in _of_archive(packed, head):
            size += len(block)
            if size > max(FREE_GROWTH, MOST_GROWTH * packed.count):
                raise DataError(
                    f"unpacks to more than {MOST_GROWTH} times its size: this is no text", shown
                )
            yield block
    else:
        # read1 returns what there is: a line that is typed is answered before the next.
        while block := raw.read1(BLOCK):
            yield block


class _Counted:
    """A stream that counts the bytes read from it."""

    def __init__(self, raw: BinaryIO):
        self._raw, self.count = raw, 0

    def read(self, size: int = -1) -> bytes:
        block = self._raw.read(size)
        self.count += len(block)
        return block


def _of_archive(packed: Any, head: bytes) -> Iterator[bytes]:
    if head.startswith(_ZSTD):
        yield from _zstd(packed)
        return
    with gzip.GzipFile(fileobj=packed) if head.startswith(_GZIP) else lzma.LZMAFile(packed) as text:
        while block := text.read1(BLOCK):
            yield block


def _zstd(raw: _Counted) -> Iterator[bytes]:
    """Frame after frame; the library's own reader does not notice a truncated one."""
    frame = None
    while packed := raw.read(_ZSTD_INPUT):
        while packed:
            if frame is None:
                frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
            block = frame.decompress(packed)
            for start in range(0, len(block), BLOCK):
                yield block[start : start + BLOCK]
            packed = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame = None
    if frame is not None:
        raise EOFError


@contextmanager
def _one_sentence(shown: str) -> Iterator[None]:
    """Turn what goes wrong when a file is read into what its owner should do."""
    try:
        yield
    except IsADirectoryError:
        raise DataError("is a directory: name the text file inside it", shown) from None
    except FileNotFoundError:
        raise DataError("no such file", shown) from None
    except EOFError:
        raise DataError("ends in mid-archive, it is truncated: copy it again", shown) from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstandard.ZstdError) as error:
        raise DataError(f"is a damaged archive ({error}): copy it again", shown) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", shown) from None
