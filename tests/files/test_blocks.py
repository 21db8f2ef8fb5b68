"""Blocks of an output: none is lost, made twice or mixed with others, whatever ends a process."""

import gzip
import json
import lzma
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from regard.errors import DataError, RegardError
from regard.files.blocks import Blocks
from run.killing import Fork, full_at, killed_at

LINES = [f"line {n}" for n in range(17)]
WHOLE = "".join(f"{n}: LINE {n}\n" for n in range(17))
SETTINGS = {"model": "0123456789abcdef", "beam": 4}


def said(lines: list[str], first: int) -> str:
    return "".join(f"{n}: {line.upper()}\n" for n, line in enumerate(lines, first))


def measured(lines: list[str], first: int) -> int:
    return sum(len(line.split()) for line in lines)


def begun(folder: Path, size: int = 5, **settings: object) -> Blocks:
    """Blocks of 5, 5, 5 and 2 lines."""
    blocks = Blocks(folder / "in", folder / "out", size, SETTINGS | settings)
    blocks.begin(measured)
    return blocks


def made(folder: Path, translate: Callable[[list[str], int], str] = said) -> None:
    blocks = begun(folder)
    blocks.write(translate, wait=True)
    blocks.join()


def test_a_command_that_began_at_the_same_time_is_joined(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    others: list[Blocks] = []

    def measure(lines: list[str], first: int) -> int:
        """While this command reads the text, another one makes the folder."""
        if not others:
            others.append(begun(tmp_path))
        return measured(lines, first)

    blocks = Blocks(tmp_path / "in", tmp_path / "out", 5, SETTINGS)
    blocks.begin(measure)
    blocks.write(said, wait=True)
    blocks.join()
    assert (tmp_path / "out").read_text() == WHOLE
    other = Blocks(tmp_path / "in", tmp_path / "out", 5, SETTINGS | {"beam": 1})
    with pytest.raises(RegardError, match="exists already"):
        other.begin(measured)


def test_a_folder_that_another_command_is_making_stays(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a line\n")
    theirs = tmp_path / "..out.parts.1.tmp"
    theirs.mkdir()

    def measure(lines: list[str], first: int) -> int:
        """Only after the folder is made may theirs be removed: the other command then joins in."""
        assert theirs.exists()
        return measured(lines, first)

    Blocks(tmp_path / "in", tmp_path / "out", 5, SETTINGS).begin(measure)
    assert names(tmp_path) == {"in", ".out.parts"}


def stopped_after(count: int) -> Callable[[list[str], int], str]:
    """A translator of this many blocks, which then fails."""
    left = count

    def translate(lines: list[str], first: int) -> str:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return said(lines, first)

    return translate


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").write_text("\n".join(LINES))
    return tmp_path


def test_the_blocks_make_the_output_in_order(folder: Path) -> None:
    blocks = begun(folder)
    assert (blocks.lines, blocks.tokens, blocks.missing()) == (17, [10, 10, 10, 4], {0, 1, 2, 3})
    assert blocks.lines_of({1, 3}) == 5 + 2
    heard: list[set[int]] = []
    blocks.write(said, heard.append, wait=True)
    assert heard == [{0, 1, 2, 3}, {1, 2, 3}, {2, 3}, {3}, set()]
    assert not blocks.out.exists()
    blocks.join()
    assert blocks.out.read_text() == WHOLE
    assert names(folder) == {"in", "out"}


@pytest.mark.parametrize("count", [0, 1, 3])
def test_finished_blocks_are_not_made_again(folder: Path, count: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        made(folder, stopped_after(count))
    assert not (folder / "out").exists()
    with pytest.raises(KeyboardInterrupt):
        made(folder, stopped_after(4 - count - 1))
    made(folder, stopped_after(1))
    assert (folder / "out").read_text() == WHOLE


def test_killed_at_any_instant_nothing_is_lost_or_left(folder: Path) -> None:
    n = 1
    while killed_at(n, folder, made, folder):
        if (folder / "out").exists():
            assert (folder / "out").read_text() == WHOLE
        else:
            made(folder)
        assert (folder / "out").read_text() == WHOLE
        begins_anew(folder)
        n += 1
    assert n > 30


def test_a_disk_full_at_any_instant_is_one_sentence_and_nothing_is_lost(folder: Path) -> None:
    said_of_it: list[str] = []

    def make() -> None:
        try:
            made(folder)
        except RegardError as error:
            said_of_it.append(str(error))

    n = 1
    while full_at(n, make):
        if said_of_it:  # and not while a finished folder goes
            assert re.match(rf"{folder}/.*: cannot write: No space left.*;", said_of_it.pop())
            made(folder)
        assert (folder / "out").read_text() == WHOLE
        begins_anew(folder)
        n += 1
    assert n > 30


def begins_anew(folder: Path) -> None:
    """Nothing but the text stays; what is left of the folder goes with the next command."""
    if ".out.parts" in names(folder):
        made(folder)
    with pytest.raises(RegardError, match="out: exists already"):
        begun(folder)
    assert names(folder) == {"in", "out"}
    (folder / "out").unlink()


def translate_noting(folder: Path, process: str) -> None:
    """Translate what can be claimed, slowly; note each block as it begins."""

    def translate(lines: list[str], first: int) -> str:
        with (folder / "notes").open("a") as notes:
            notes.write(f"{process} {first}\n")
        time.sleep(0.05)
        return said(lines, first)

    blocks = Blocks(folder / "in", folder / "out", 1, SETTINGS)
    assert blocks.join_in()
    blocks.write(translate, wait=False)


def test_processes_share_the_blocks(folder: Path) -> None:
    blocks = begun(folder, size=1)
    processes = [Fork(target=translate_noting, args=(folder, str(i))) for i in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    notes = [line.split() for line in (folder / "notes").read_text().splitlines()]
    assert sorted(int(first) for _, first in notes) == list(range(17))
    assert {process for process, _ in notes} == {"1", "2"}
    blocks.join()
    assert blocks.out.read_text() == WHOLE


def hang(folder: Path) -> None:
    """Claim a block, and never finish it."""

    def translate(lines: list[str], first: int) -> str:
        (folder / "claimed").touch()
        time.sleep(600)
        return ""

    blocks = Blocks(folder / "in", folder / "out", 5, SETTINGS)
    assert blocks.join_in()
    blocks.write(translate, wait=False)


def test_what_a_killed_process_had_claimed_is_done_by_the_first(folder: Path) -> None:
    blocks = begun(folder)
    process = Fork(target=hang, args=(folder,))
    process.start()
    while not (folder / "claimed").exists():
        time.sleep(0.01)
    blocks.write(said, wait=False)  # all but that one
    assert blocks.missing() == {0}

    def listen(missing: set[int]) -> None:
        if missing and process.is_alive():
            assert process.pid
            os.kill(process.pid, signal.SIGKILL)
            process.join()

    blocks.write(said, listen, wait=True)
    blocks.join()
    assert blocks.out.read_text() == WHOLE


def test_whoever_comes_late_finds_nothing_to_do(folder: Path) -> None:
    blocks, late, asleep = begun(folder), *(Blocks(folder / "in", folder / "out", 5, SETTINGS),) * 2
    assert late.join_in()
    blocks.write(said, wait=True)
    blocks.join()
    late.write(stopped_after(0), wait=False)
    late.join()  # had it been started as a first one too
    assert not asleep.join_in()
    assert blocks.out.read_text() == WHOLE


def test_a_file_of_locks_that_cannot_be_opened_is_one_sentence(folder: Path) -> None:
    blocks = begun(folder)
    (blocks.folder / "claims").unlink()
    (blocks.folder / "claims").mkdir()
    with pytest.raises(RegardError, match=r"out\.parts: cannot write: Is a directory"):
        Blocks(folder / "in", folder / "out", 5, SETTINGS).join_in()


@pytest.mark.parametrize(
    ("change", "said_of_it"),
    [
        ({"beam": 1}, "beam 4 there, 1 here"),
        ({"model": "fedcba9876543210"}, "model 0123456789ab there, fedcba987654 here"),
        ({"exact": True}, "exact None there, True here"),
        ({"size": 7}, "lines a block 5 there, 7 here"),
    ],
)
def test_blocks_made_otherwise_are_refused(
    folder: Path, change: dict[str, int], said_of_it: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        made(folder, stopped_after(2))
    with pytest.raises(RegardError) as refusal:
        begun(folder, **change)
    assert str(refusal.value) == (
        f"{folder}/out: was begun otherwise ({said_of_it}): give what it was begun with, choose "
        f"another --out, or remove {folder}/.out.parts to begin anew"
    )
    made(folder)
    assert (folder / "out").read_text() == WHOLE


def test_another_text_is_refused(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        made(folder, stopped_after(2))
    (folder / "in").write_text("\n".join([*LINES[:-1], "another"]))
    with pytest.raises(RegardError, match=r"out: was begun otherwise \(input [0-9a-f]{12} there, "):
        begun(folder)


def test_a_text_that_changes_meanwhile_makes_no_block(folder: Path) -> None:
    def change(lines: list[str], first: int) -> str:
        (folder / "in").write_text("\n".join([*LINES, "more"]))
        return said(lines, first)

    blocks = begun(folder)
    with pytest.raises(RegardError, match="in: has changed while it was translated"):
        blocks.write(change, wait=True)
    assert blocks.missing() == {0, 1, 2, 3}


def test_a_text_that_goes_away_meanwhile_makes_no_block(folder: Path) -> None:
    def remove(lines: list[str], first: int) -> str:
        (folder / "in").unlink()
        return said(lines, first)

    blocks = begun(folder)
    with pytest.raises(RegardError, match="in: has changed while it was translated: put back"):
        blocks.write(remove, wait=True)
    assert blocks.missing() == {0, 1, 2, 3}


def test_a_bad_line_is_refused_before_anything_is_made(folder: Path) -> None:
    with (folder / "in").open("ab") as text:
        text.write(b"\nM\xfcller")
    with pytest.raises(DataError, match=rf"^{folder}/in:18: is not UTF-8"):
        begun(folder)
    assert names(folder) == {"in"}


def test_no_other_file_is_replaced(folder: Path) -> None:
    (folder / "out").write_text("mine")
    with pytest.raises(RegardError, match="out: exists already: remove it, or choose another"):
        begun(folder)
    assert names(folder) == {"in", "out"}
    (folder / "out").unlink()
    blocks = begun(folder)
    blocks.write(said, wait=True)
    (folder / "out").write_text("mine")
    with pytest.raises(RegardError, match="out: has appeared meanwhile: move it away"):
        blocks.join()
    assert (folder / "out").read_text() == "mine"
    (folder / "out").unlink()
    made(folder, stopped_after(0))
    assert (folder / "out").read_text() == WHOLE


def test_a_damaged_manifest(folder: Path) -> None:
    begun(folder)
    manifest = folder / ".out.parts" / "manifest.json"
    written = json.loads(manifest.read_text())
    number = json.dumps(written | {"settings": 5}).encode()
    for content in (b"", b"[1]", b"{}", b"\xff", number):
        manifest.write_bytes(content)
        with pytest.raises(RegardError, match=r"manifest.json: damaged: .*: remove .* begin anew"):
            begun(folder)
    manifest.unlink()
    manifest.mkdir()
    with pytest.raises(RegardError, match=r"manifest.json: cannot be read: Is a directory"):
        begun(folder)


def test_an_empty_text_makes_an_empty_output(folder: Path) -> None:
    (folder / "in").write_text("")
    made(folder)
    assert (folder / "out").read_bytes() == b""


@pytest.mark.parametrize(
    "pack", [gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress]
)
def test_packed_text(folder: Path, pack: Callable[[bytes], bytes]) -> None:
    (folder / "in").write_bytes(pack("\n".join(LINES).encode()))
    with pytest.raises(KeyboardInterrupt):
        made(folder, stopped_after(3))
    made(folder)
    assert (folder / "out").read_text() == WHOLE
