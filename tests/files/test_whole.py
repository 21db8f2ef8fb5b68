"""Whatever interrupts a writer, what was there before is there after."""

import errno
import itertools
import os
from pathlib import Path
from typing import Any

import pytest

from files.limits import files_of_at_most
from regard.errors import RegardError
from regard.files.whole import (
    parents_made,
    refusing_write_errors,
    remove_leftovers,
    write_file,
)
from run.killing import at_instant, full_at


@pytest.mark.parametrize("content", ["new é", b"new \xff"])
def test_a_file_is_replaced_as_a_whole(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "file"
    for expected in (b"old", content.encode() if isinstance(content, str) else content):
        write_file(path, expected)
        assert path.read_bytes() == expected
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_file_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/file")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far/file").read_text() == "new"


def test_a_link_to_itself_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").read_text() == "new"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(RegardError, match="file: cannot write: Too many levels of symbolic links"):
        write_file(tmp_path / "loop/file", "new")


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(RegardError, match=f"{name}: cannot write: is not a regular file"):
            write_file(tmp_path / name, "new")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_file_is_old_or_new_whatever_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for n in itertools.count(1):
        write_file(path, "old")
        try:
            if not full_at(n, write_file, path, "new"):
                break
        except RegardError as error:
            assert str(error).startswith(f"{path}: cannot write: No space left on device")
        assert path.read_text() in ("old", "new")
        remove_leftovers(tmp_path)  # the last failure is that of removing the temporary file
        assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert n > 4  # it opens, syncs, renames, syncs and removes


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path: Path) -> None:
    write_file(tmp_path / "file", "old")
    with files_of_at_most(89), pytest.raises(RegardError, match="file: cannot write: File too"):
        write_file(tmp_path / "file", "x" * 97)
    assert (tmp_path / "file").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_write_error_becomes_one_sentence_and_other_errors_stay(tmp_path: Path) -> None:
    sentence = "place: cannot write: Is a directory"
    with pytest.raises(RegardError, match=sentence), refusing_write_errors(Path("place")):
        tmp_path.open("w")
    with pytest.raises(KeyError), refusing_write_errors(Path("place")):
        raise KeyError


def test_only_temporary_names_are_removed(tmp_path: Path) -> None:
    others = [".lock", ".mine.tmp", ".out.12345678.earlier", ".out.12345678.partial", "b.tmp"]
    for name in (".a.7.tmp", ".sealed.tmp", ".verify.x1.tmp", *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inside").touch()
    (tmp_path / ".file.7.tmp").touch()
    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path / "missing")
    assert sorted(p.name for p in tmp_path.iterdir()) == others


def test_a_parent_may_be_made_by_two_processes_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def second(path: Path, *args: Any, **options: Any) -> None:
        make(path, parents=True, exist_ok=True)  # the other process was faster
        make(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", second)
    with parents_made(tmp_path / "a" / "b" / "file"):
        (tmp_path / "a" / "b" / "file").touch()
    assert (tmp_path / "a" / "b" / "file").exists()


def test_what_cannot_be_removed_stays_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".a.7.tmp").mkdir()
    (tmp_path / ".b.8.tmp").touch()

    def forbidden(path: Path) -> None:  # as for a file of another user
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("shutil.rmtree", forbidden)
    remove_leftovers(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [".a.7.tmp"]


def test_the_instants_of_these_tests_are_counted(tmp_path: Path) -> None:
    seen: list[str] = []
    with at_instant(2, lambda: seen.append("second")):
        (tmp_path / "a").touch()
        assert not seen
        (tmp_path / "a").rename(tmp_path / "b")
        assert seen == ["second"]
        (tmp_path / "b").unlink()
    assert seen == ["second"]
