import bz2
import gzip
import io
import lzma
import os
import random
import re
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DataError
from regard.files.lines import (
    LONGEST_LINE,
    READ_BYTES,
    read_lines,
    refuse_unreadable,
    text_checksum,
)

SKIPPED = b"\x50\x2a\x4d\x18\x04\0\0\0size"
"""A frame with four bytes to skip: pzstd writes one before each block."""
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "xz": partial(lzma.compress, preset=0),  # which is quicker
    "pzstd": lambda text: SKIPPED + zstandard.ZstdCompressor(write_checksum=True).compress(text),
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,  # as the zstd command does
}
packed = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
archived = pytest.mark.parametrize("pack", list(PACKERS.values())[1:], ids=list(PACKERS)[1:])


def refusal(path: Path | str) -> str:
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some.text"  # the name says nothing of the content


@packed
def test_lines_come_back_from_every_format(file: Path, pack: Callable[[bytes], bytes]) -> None:
    draw = random.Random(3)
    lines = ["é" * draw.randrange(97) for _ in range(7919)]
    file.write_bytes(pack("\n".join(lines).encode() + b"\n"))
    assert list(read_lines(file)) == lines
    assert (
        len("\n".join(lines).encode()) > 2 * READ_BYTES
    )  # lines that cross blocks were among them


@archived
def test_archives_that_were_appended_to_one_another_are_read_through(
    file: Path, pack: Callable[[bytes], bytes]
) -> None:
    file.write_bytes(pack(b"one\ntw") + pack(b"o\nthree"))
    assert list(read_lines(file)) == ["one", "two", "three"]


@given(st.text().map(lambda text: text.replace("\0", "")))
def test_only_line_feeds_part_lines(text: str) -> None:
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text.encode()))
    try:
        lines = list(read_lines("-"))
    finally:
        sys.stdin = stdin
    expected = text.removeprefix("\ufeff").split("\n")
    if not expected[-1] and text != "\ufeff":
        expected.pop()
    assert lines == [line.removesuffix("\r") for line in expected]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        ("\ufeffa\n\ufeffb".encode(), ["a", "\ufeffb"]),
        ("a\u2028b\x0bc\x85d\n".encode(), ["a\u2028b\x0bc\x85d"]),
    ],
)
def test_line_ends(file: Path, content: bytes, lines: list[str]) -> None:
    file.write_bytes(content)
    assert list(read_lines(file)) == lines


def test_the_place_of_what_is_not_utf_8_is_told(file: Path) -> None:
    file.write_bytes(b"good\n" * 99_991 + b"f\xfcnf\n" + b"good\n" * 5)
    assert f"{file}:99992: is not UTF-8 (byte 0xFC at byte 2 of the line)" in refusal(file)


@pytest.mark.parametrize("bad", [b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"])
def test_surrogates_overlong_and_cut_characters_are_not_utf_8(file: Path, bad: bytes) -> None:
    file.write_bytes(b"a\nb" + bad + b"\n")
    assert f"{file}:2: is not UTF-8" in refusal(file)


@pytest.mark.parametrize("kind", ["bzip2", "zip", "gzip"])
def test_other_archives_are_named(file: Path, kind: str) -> None:
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("text", "a\nb\n")
    else:
        file.write_bytes({"bzip2": bz2, "gzip": gzip}[kind].compress(b"a\nb\n"))
    given = file
    if kind == "gzip":  # a packed file in a packed file
        given = file.with_name("twice.gz")
        given.write_bytes(gzip.compress(file.read_bytes()))
    assert f"is a {kind} file: give plain text" in refusal(given)


def test_binary_files_are_refused(file: Path) -> None:
    file.write_bytes(b"one\ntwo\nP\x00K\n")
    assert f"{file}:3: has a NUL byte" in refusal(file)
    file.write_bytes("Grüße\n".encode("utf-16-le"))
    assert "iconv" in refusal(file)


@archived
def test_a_truncated_archive_is_refused(file: Path, pack: Callable[[bytes], bytes]) -> None:
    whole = pack(random.Random(5).randbytes(9973).hex().encode())
    for size in (len(whole) - 1, len(whole) // 2, 7):
        file.write_bytes(whole[:size])
        assert "truncated" in refusal(file)


@archived
def test_a_damaged_archive_is_refused(file: Path, pack: Callable[[bytes], bytes]) -> None:
    whole = bytearray(pack(random.Random(5).randbytes(9973).hex().encode()))
    whole[len(whole) // 2 : len(whole) // 2 + 100] = b"?" * 100
    file.write_bytes(whole)
    message = refusal(file)
    assert "damaged archive" in message or "is not UTF-8" in message


def test_a_later_stream_of_xz_is_read_or_refused(file: Path) -> None:
    """Python's own reader takes a damaged later stream for the end of the file."""
    first, second = (lzma.compress(text, preset=0) for text in (b"one\n", b"two\n"))
    for padding in (b"", bytes(4), bytes(2**17)):
        file.write_bytes(first + padding + second + padding)
        assert list(read_lines(file)) == ["one", "two"]
    header, middle = bytearray(second), bytearray(second)
    header[8] ^= 1
    middle[len(second) // 2] ^= 1
    for damaged in (bytes(header), bytes(middle), b"?" + second, gzip.compress(b"two\n"), b"two\n"):
        file.write_bytes(first + damaged)
        assert re.search("damaged archive|truncated", refusal(file))
    for cut in (second[:3], second[:-1]):
        file.write_bytes(first + cut)
        assert "truncated" in refusal(file)


@packed
def test_a_line_without_an_end_is_refused(file: Path, pack: Callable[[bytes], bytes]) -> None:
    file.write_bytes(pack(b"first\n" + b"a" * (16 * LONGEST_LINE)))
    assert f"{file}:2: this line is longer than 4 MiB" in refusal(file)


@packed
@pytest.mark.parametrize("first", [b"", b"first\n"])
def test_the_longest_line(file: Path, pack: Callable[[bytes], bytes], first: bytes) -> None:
    file.write_bytes(pack(first + b"a" * LONGEST_LINE + b"\nb"))
    assert [*map(len, read_lines(file))][-2:] == [LONGEST_LINE, 1]
    file.write_bytes(pack(first + b"a" * (LONGEST_LINE + 1) + b"\nb"))
    assert f"{file}:{1 + bool(first)}: this line is longer than 4 MiB" in refusal(file)


def test_a_zstd_bomb_is_unpacked_block_by_block(file: Path) -> None:
    file.write_bytes(zstandard.ZstdCompressor().compress(b"\n" * 2**26))
    lines = read_lines(file)
    assert [next(lines) for _ in range(5)] == [""] * 5


@archived
def test_an_archive_that_is_all_growth_is_no_text(
    file: Path, pack: Callable[[bytes], bytes]
) -> None:
    file.write_bytes(pack((b"ab " * 33 + b"\n") * 360_000))  # 36 MB in lines that are few
    assert f"{file}: unpacks to more than 200 times its size: this is not text" in refusal(file)
    file.write_bytes(pack(b"ab\n" * 2**20))  # of little that repeats itself nothing is to be feared
    assert len(list(read_lines(file))) == 2**20


def test_wrong_paths_are_refused(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "missing")
    assert "cannot be read" in refusal(tmp_path / ("long" * 100))
    (tmp_path / "file").touch()
    assert "cannot be read" in refusal(tmp_path / "file" / "below")


@packed
def test_the_bytes_that_were_read_are_told(file: Path, pack: Callable[[bytes], bytes]) -> None:
    file.write_bytes(pack(random.Random(7).randbytes(2**18).hex().encode()))
    told: list[int] = []
    list(read_lines(file, told.append))
    assert sum(told) == file.stat().st_size


def test_what_can_be_read_only_once_is_refused_where_twice_is_needed(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    refuse_unreadable(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")  # nobody writes into it, so opening it would wait for ever
    for once in ("-", "/dev/null", tmp_path / "pipe"):
        with pytest.raises(DataError, match="more than once"):
            refuse_unreadable(once)
    with pytest.raises(DataError, match="is a directory"):
        refuse_unreadable(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        refuse_unreadable(tmp_path / "b")


def test_checksum_is_of_the_stored_bytes(file: Path) -> None:
    file.write_bytes(b"abc")
    assert text_checksum(file) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
