"""Text that cannot be read or leaves nothing is refused by file and line."""

import gzip
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from cli.refusing import GOOD, World, forked, refused, regard, unchanged


def _packed(pack: Callable[[bytes], bytes], spoil: Callable[[bytes], bytes]) -> bytes:
    return spoil(pack("".join(f"the dog sees {n} cats\n" for n in range(2000)).encode()))


def _middle_flipped(packed: bytes) -> bytes:
    middle = len(packed) // 2
    return packed[:middle] + bytes(b ^ 0xFF for b in packed[middle : middle + 16]) + packed[-400:]


TEXT: dict[str, tuple[bytes | None, int | None, str]] = {
    # content (None: there is no such file), the line at fault, the remedy or what is wrong
    "missing": (None, None, "no such file"),
    "binary": (GOOD.encode() * 2 + b"\x00\x01\x02\n", 3, "give UTF-8 text"),
    "UTF-16": (GOOD.encode("utf-16"), 1, "iconv"),
    "not UTF-8": (GOOD.encode() * 6 + b"M\xfcller\n" + GOOD.encode(), 7, "convert it"),
    "a lone surrogate": (GOOD.encode() * 4 + b"\xed\xa0\x80\n", 5, "convert it"),
    "cut inside a character": (GOOD.encode() + b"caf\xc3", 2, "mend the line"),
    "a line without end": (b"x" * (4 * 2**20 + 1), 1, "one sentence a line"),
    "a truncated gz": (_packed(gzip.compress, lambda b: b[:-20]), None, "copy it again"),
    "a truncated xz": (_packed(lzma.compress, lambda b: b[:-20]), None, "copy it again"),
    "a truncated zst": (
        _packed(zstandard.ZstdCompressor().compress, lambda b: b[:-20]),
        None,
        "copy it again",
    ),
    "a corrupt gz": (_packed(gzip.compress, _middle_flipped), None, "copy it again"),
    "a corrupt xz": (_packed(lzma.compress, _middle_flipped), None, "copy it again"),
}
READERS: dict[str, Callable[[World, Path], list[str | Path]]] = {
    "prepare --source": lambda w, bad: ["prepare", "--source", bad, *w.text[2:], *w.out],
    "prepare --target": lambda w, bad: ["prepare", *w.text[:2], "--target", bad, *w.out],
    "train --source": lambda w, bad: ["train", "--source", bad, *w.text[2:], *w.out],
    "prepare --valid-target": lambda w, bad: [
        *("prepare", *w.text, "--valid-source", w.text[1], "--valid-target", bad, *w.out),
    ],
    "translate": lambda w, bad: ["translate", w.made / "model", "-i", bad],
    "score": lambda w, bad: ["score", bad, "-r", w.text[1]],
    "score --reference": lambda w, bad: ["score", w.text[1], "-r", bad],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", TEXT)
def test_text_that_cannot_be_read_is_refused_by_file_and_line(
    world: World, text: str, reader: str
) -> None:
    content, line, remedy = TEXT[text]
    bad = world.folder / "bad.txt"
    if content is not None:
        bad.write_bytes(content)
    with unchanged(world.folder):
        said = refused(*READERS[reader](world, bad))
    assert said.startswith(f"{bad}:{line}: " if line else f"{bad}: ")
    assert remedy in said


@pytest.mark.parametrize("reader", READERS)
def test_a_folder_in_the_place_of_a_file(world: World, reader: str) -> None:
    (world.folder / "folder").mkdir()
    with unchanged(world.folder):
        said = refused(*READERS[reader](world, world.folder / "folder"))
    assert said == f"{world.folder / 'folder'}: is a directory: name the text file inside it"


def test_bad_text_on_standard_input_is_named_so(world: World) -> None:
    said = refused("translate", world.made / "model", stdin=GOOD.encode() + b"\xff\n")
    assert said.startswith("standard input:2: is not UTF-8 (byte 0xFF at byte 1 of the line)")


UNUSABLE: dict[str, tuple[bytes, bytes, str, str]] = {
    # source, target, the place, the remedy
    "empty": (b"", b"", "bad.source: ", "give text"),
    "one side empty": (GOOD.encode() * 3, b"", "bad.target: ", "find where they diverge"),
    "target shorter": (GOOD.encode() * 5, GOOD.encode() * 3, "bad.target:3: ", "find where"),
    "source shorter": (GOOD.encode() * 3, GOOD.encode() * 5, "bad.source:3: ", "find where"),
    "blank lines alone": (b" \n" * 31, b"\n" * 31, "bad.source: ", "give at least ten"),
    "all too long": (
        (b"x" * 2000 + b"\n") * 31,
        (b"x" * 2000 + b"\n") * 31,
        "bad.source: ",
        "give at least ten",
    ),
    "nine pairs": (GOOD.encode() * 9, GOOD.encode() * 9, "bad.source: ", "give at least ten"),
}


@pytest.mark.parametrize("command", ["prepare", "train"])
@pytest.mark.parametrize("text", UNUSABLE)
def test_a_corpus_that_leaves_nothing(world: World, text: str, command: str) -> None:
    source, target, place, remedy = UNUSABLE[text]
    files = ["--source", world.write("bad.source", source)]
    files += ["--target", world.write("bad.target", target)]
    with unchanged(world.folder):
        said = refused(command, *files, *world.out, *world.recipe)
    assert said.startswith(f"{world.folder}/{place}")
    assert remedy in said


def test_all_pairs_too_long_in_pieces_alone(world: World) -> None:
    words = ["qz", "vx", "jk", "wq", "zv", "xj", "kq", "wz", "qx", "vj"]
    lines = "".join(f"{' '.join(words[i:] + words[:i])} {i}\n" for i in range(len(words)))
    source = world.write("bad.source", lines + lines.upper())
    target = world.write("bad.target", lines + lines.upper())
    with unchanged(world.folder):
        said = refused(
            *("prepare", "--source", source, "--target", target, *world.out),
            *(*world.recipe, "--set", "data.max_length=3"),
        )
    assert said.startswith(f"{source}: no pair is left")
    assert "loosen data.max_length" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--source", "source.en"], "--source names 2 and --target 1 files: give them in pairs"),
        (
            ["--valid-source", "source.en"],
            "--valid-source names 1 and --valid-target 0 files: give them in pairs",
        ),
    ],
)
def test_files_without_counterpart(world: World, more: list[str], said: str) -> None:
    with pytest.MonkeyPatch.context() as patch, unchanged(world.folder):
        patch.chdir(world.folder)
        assert refused("prepare", *world.text, *more, *world.out) == said


def test_a_pipe_cannot_be_read_thrice(world: World) -> None:
    pipe = world.folder / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    try:
        said = refused("prepare", "--source", pipe, *world.text[2:], *world.out)
    finally:
        os.close(writer)
    assert said == f"{pipe}: is read more than once here: save it in a regular file first"


def test_standard_input_cannot_be_read_thrice(world: World) -> None:
    said = refused("train", "--source", "-", *world.text[2:], *world.out, stdin=GOOD.encode())
    assert said == "standard input: is read more than once here: save it in a file first"


LONG = "the dog sees the cat, " * 4545 + "the bird"  # 99,998 characters


def test_a_line_of_100_000_characters_is_refused_by_name(world: World) -> None:
    text = world.write("long.en", f"{GOOD}{GOOD}{LONG}\n")
    said = refused("translate", world.made / "model", "--long", "refuse", "-i", text)
    assert re.match(re.escape(f"{text}:3: ") + r"\d+ pieces; this model reads at most 24: ", said)
    assert "--long refuse" in said


def test_a_line_of_100_000_characters_is_split_and_said_once(world: World) -> None:
    argv = ["translate", world.made / "model", "--beam", "1"]
    result = forked(*argv, stdin=f"{GOOD}{LONG}\n{LONG[:999]}\n{GOOD}".encode())
    assert result.status == 0
    assert result.stderr.startswith("standard input:2: ")
    assert result.stderr.count("translated in parts") == 1
    lines = result.stdout.split("\n")
    assert len(lines) == 5
    assert lines[0] == lines[3]


def test_a_line_of_100_000_characters_is_dropped_from_training_and_counted(world: World) -> None:
    for name in ("source.en", "target.de"):
        with (world.folder / name).open("a") as file:
            file.write(LONG + "\n")
    result = regard("prepare", *world.text, *world.out, *world.recipe)
    assert result.status == 0
    assert "1 too long" in result.stdout
