"""Read text files that have one sentence on each line, as the corpora have (§5.1).

Plain, .gz, .xz and .zst files are recognised by their first bytes, not by their names; "-" is
standard input. Even a large file needs little memory: a file is read block by block, and a line
longer than LONGEST_LINE is refused.

Only a line feed ends a line. A carriage return before a line feed is dropped, and so is a byte
order mark at the start of the file; nothing else is changed.
"""

import gzip
import lzma
import re
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from regard.errors import DataError
from regard.files.regular import checksum

LONGEST_LINE = 4 * 2**20
"""A line with more bytes than this is refused: a file with such a line does not hold sentences."""
READ_BYTES = 2**18
"""The content of a file, unpacked if it is compressed, is passed on in blocks of at most this many
bytes."""
MOST_GROWTH, FREE_GROWTH = 200, 2**25
"""An archive is refused if it unpacks to more than 200 times its size and more than 32 MiB."""
_ZSTD_INPUT, _XZ_INPUT = 2**10, 2**16
"""Numbers of compressed bytes, of zstd and of xz, that are unpacked at once. zstd may return 32,000
times as many bytes."""
_ZSTD_WINDOW = 2**27

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd", *(bytes([first]) + b"\x2a\x4d\x18" for first in range(0x50, 0x60))
"""The first bytes of a zstd frame with text, and of skippable frames, which pzstd also writes."""


def read_lines(
    path: str | Path, read: Callable[[int], object] | None = None
) -> Generator[str, None, None]:
    """The lines of a file, without line feeds; the last line of the file needs no line feed.

    After each block, `read` is called with the number of bytes that were read from the file since
    the last call; of a compressed file, these are compressed bytes. For a pipe, `read` is never
    called. Raises DataError for a missing or unreadable file, a directory, text that is not UTF-8,
    binary content, an archive that is damaged, truncated or grows too much, and a line over
    LONGEST_LINE. The error names the file and, if one line is wrong, the line.
    """
    number = 0
    for block in read_blocks(path, read):
        lines = decode_lines(block, path, number)
        yield from lines
        number += len(lines)


def read_blocks(path: str | Path, read: Callable[[int], object] | None = None) -> Iterator[bytes]:
    """The bytes of a file in blocks of complete lines; each block ends with a line feed.

    A compressed file is decompressed. `read` is called as in `read_lines`. Raises the errors
    of `read_lines`, except those of `decode_lines`.
    """
    shown = shown_name(path)
    number, rest = 0, b""
    for block in _blocks(path, shown, read):
        rest += block
        end = rest.rfind(b"\n") + 1
        # Only the first line of `rest` can exceed LONGEST_LINE: every other line begins in the
        # block that was just read, and a block is shorter than LONGEST_LINE.
        if (rest.index(b"\n") if end else len(rest)) > LONGEST_LINE:
            raise DataError(
                f"this line is longer than {LONGEST_LINE // 2**20} MiB: give text with one "
                "sentence a line",
                shown,
                number + 1,
            )
        if end:
            yield rest[:end]
            number, rest = number + rest.count(b"\n"), rest[end:]
    if rest:
        yield rest + b"\n"


_ARCHIVES = {
    "bzip2": rb"BZh[1-9]1AY&SY", "zip": rb"PK\x03\x04", "7z": rb"7z\xbc\xaf", "PDF": rb"%PDF-\d",
    "gzip": rb"\x1f\x8b", "xz": rb"\xfd7zXZ", "zstd": rb"\x28\xb5\x2f\xfd",
}  # fmt: skip
"""Regular expressions for the first bytes of files that are not text. The last three are found only
in files that were packed twice, because one layer of packing has been removed before."""


def decode_lines(block: bytes, path: str | Path, before: int) -> list[str]:
    """The lines of a block from `read_blocks`; the file has `before` lines before the block.

    Raises DataError for binary content and text that is not UTF-8. The error names the file and the
    line or, for an archive or a PDF, only the file.
    """
    kinds = [] if before else [kind for kind, first in _ARCHIVES.items() if re.match(first, block)]
    if kinds:
        raise DataError(
            f"is a {kinds[0]} file: give plain text, or text packed as .gz, .xz or .zst",
            shown_name(path),
        )
    if (at := block.find(b"\0")) >= 0:
        raise DataError(
            "has a NUL byte, so this is a binary file or UTF-16: give UTF-8 text (iconv -t utf-8)",
            shown_name(path),
            before + block.count(b"\n", 0, at) + 1,
        )
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        at = block.rfind(b"\n", 0, error.start) + 1
        raise DataError(
            f"is not UTF-8 (byte 0x{block[error.start]:02X} at byte {error.start - at + 1} of the "
            "line): convert it with iconv -f ENCODING -t utf-8, or mend the line",
            shown_name(path),
            before + block.count(b"\n", 0, error.start) + 1,
        ) from None
    if before == 0:
        text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    return text[:-1].split("\n")


def text_of_lines(lines: Iterable[str]) -> str:
    """The text of a file that has these lines, with a line feed after each line.

    `read_lines` reads the same lines from this file, but drops a carriage return at the end of a
    line. If the first line begins with a byte order mark, or with the first bytes of an archive or
    a PDF, one more byte order mark is put before the text. `read_lines` drops this mark.
    """
    text = "".join(f"{line}\n" for line in lines)
    first = text[:20].encode()
    is_odd = text.startswith("\ufeff") or any(re.match(kind, first) for kind in _ARCHIVES.values())
    return "\ufeff" * is_odd + text


def refuse_standard_input_twice(*paths: str | Path) -> None:
    """Raise DataError if more than one path is "-", standard input, which can be read only once."""
    if [str(path) for path in paths].count("-") > 1:
        raise DataError("can be read only once: save it in a file first", "standard input")


def refuse_unreadable(path: str | Path) -> None:
    """Raise DataError unless the path is a file that can be read more than once."""
    if str(path) == "-":
        raise DataError("is read more than once here: save it in a file first", "standard input")
    with refusing_read_errors(path):
        kind = Path(path).stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # opening a pipe may wait for ever
            raise DataError("is read more than once here: save it in a regular file first", path)
        Path(path).open("rb").close()


def text_checksum(path: str | Path) -> str:
    """The SHA-256 of a file as it is stored, in hexadecimal digits; an archive is not unpacked.

    Raises DataError if the file cannot be read.
    """
    with refusing_read_errors(path):
        return checksum(Path(path), follow_links=True)


@contextmanager
def refusing_read_errors(path: str | Path) -> Iterator[None]:
    """In a `with` block, turn errors from reading or unpacking `path` into a DataError."""
    shown = shown_name(path)
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


def shown_name(path: str | Path) -> str:
    """The name of an input in messages: "standard input" for "-", otherwise the path."""
    return "standard input" if str(path) == "-" else str(path)


def _blocks(path: str | Path, shown: str, read: Callable[[int], object] | None) -> Iterator[bytes]:
    with refusing_read_errors(path), _opened(path) as raw:
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
    if head.startswith((_GZIP, _XZ, *_ZSTD)):
        packed, size = _Counted(raw), 0
        for block in _unpacked_archive(packed, head):
            size += len(block)
            if size > max(FREE_GROWTH, MOST_GROWTH * packed.count):
                raise DataError(
                    f"unpacks to more than {MOST_GROWTH} times its size: this is not text", shown
                )
            yield block
    else:
        # read1 returns the bytes that are there, so that a typed line is processed at once.
        while block := raw.read1(READ_BYTES):
            yield block


class _Counted:
    """A stream whose `count` is the number of bytes that were read from it."""

    def __init__(self, raw: BinaryIO):
        self._raw, self.count = raw, 0

    def read(self, size: int = -1) -> bytes:
        block = self._raw.read(size)
        self.count += len(block)
        return block


def _unpacked_archive(packed: Any, head: bytes) -> Iterator[bytes]:
    if head.startswith(_GZIP):
        with gzip.GzipFile(fileobj=packed) as text:
            while block := text.read1(READ_BYTES):
                yield block
    else:
        yield from _zstd(packed) if head.startswith(_ZSTD) else _xz(packed)


def _xz(raw: _Counted) -> Iterator[bytes]:
    """Unpack each stream, without `lzma.LZMAFile`, which ignores damaged streams after the first.

    Zero bytes may follow a stream, as the .xz format allows.
    """
    stream = None
    while packed := raw.read(_XZ_INPUT):
        packed = packed.lstrip(b"\0") if stream is None else packed
        while packed:
            stream = stream or lzma.LZMADecompressor(lzma.FORMAT_XZ)
            block, packed = stream.decompress(packed, READ_BYTES), b""
            while block:
                yield block
                block = b"" if stream.eof else stream.decompress(b"", READ_BYTES)
            if stream.eof:
                packed, stream = stream.unused_data.lstrip(b"\0"), None
    if stream is not None:
        raise EOFError


def _zstd(raw: _Counted) -> Iterator[bytes]:
    """Unpack each frame, without the library's reader, which does not notice a truncated frame."""
    frame = None
    while packed := raw.read(_ZSTD_INPUT):
        while packed:
            if frame is None:
                frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
            block = frame.decompress(packed)
            for start in range(0, len(block), READ_BYTES):
                yield block[start : start + READ_BYTES]
            packed = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame = None
    if frame is not None:
        raise EOFError
