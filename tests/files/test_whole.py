"""Whatever interrupts a writer, what was there before is there after."""

import itertools
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import ModelError, RegardError
from regard.files.whole import (
    read_tensors,
    refusing_write_errors,
    remove_leftovers,
    seal,
    unseal,
    write_directory,
    write_file,
    write_tensors,
)
from run.killing import at_instant, full_at

TENSORS = {
    "view": torch.arange(35.0).view(5, 7)[:, 2:5],
    "transposed": torch.arange(6.0).view(2, 3).t(),
    "half": torch.tensor([1.5, -0.0, torch.inf], dtype=torch.bfloat16),
    "step": torch.tensor(7.0),
    "bytes": torch.tensor([0, 255], dtype=torch.uint8),
}


def fill(folder: Path) -> None:
    (folder / "text").write_text("an old saying", "utf-8")
    write_tensors(folder / "numbers", TENSORS)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Every write beyond so many bytes fails, whichever library makes it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_tensors_come_back_as_they_were_whatever_they_were_views_of(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t", TENSORS)
    back = read_tensors(tmp_path / "t")
    assert back.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_who_may_read_tensors_follows_from_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_tensors(tmp_path / "file", {"a": torch.ones(3)})
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask


@given(st.binary(max_size=37))
def test_what_is_no_safetensors_is_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"junk\.safetensors"):
        read_tensors(path)


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


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "made" / "whole"
    for n in itertools.count(1):
        with suppress(RegardError):
            if not full_at(n, write_directory, path, fill, {"step": 3}):
                break
        if path.exists():  # the failure was that of the last sync
            assert unseal(path)["step"] == 3
        shutil.rmtree(tmp_path / "made", ignore_errors=True)
        assert not list(tmp_path.iterdir())
    assert n > 9
    assert unseal(path)["step"] == 3
    assert sorted(p.name for p in path.iterdir()) == ["manifest.json", "numbers", "text"]
    assert [p.name for p in path.parent.iterdir()] == ["whole"]


@pytest.mark.parametrize("size", [7, 89, 211])  # too little for the text, the tensors, the manifest
def test_a_directory_that_does_not_fit_leaves_nothing(tmp_path: Path, size: int) -> None:
    with files_of_at_most(size), pytest.raises(RegardError, match="whole: cannot write"):
        write_directory(tmp_path / "made" / "whole", fill, {})
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_of_the_same_number_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / f".whole.{os.getpid()}.tmp").mkdir()
    (tmp_path / f".whole.{os.getpid()}.tmp" / "half").touch()
    write_directory(tmp_path / "whole", fill, {})
    assert unseal(tmp_path / "whole")["files"].keys() == {"text", "numbers"}
    assert [p.name for p in tmp_path.iterdir()] == ["whole"]


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    write_directory(tmp_path / "sealed", fill, {"step": 3})
    return tmp_path / "sealed"


@settings(deadline=None)  # a disk takes its time to sync
@given(st.data())
def test_no_changed_byte_goes_unnoticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damage") / "sealed"
    write_directory(folder, fill, {"step": 3})
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        manifest = unseal(folder)
    except ModelError as error:
        assert str(path) in str(error)
    else:  # white space between the manifest's entries tells nothing
        assert path.name == "manifest.json"
        assert manifest["step"] == 3


@pytest.mark.parametrize("name", ["numbers", "manifest.json"])
def test_a_link_or_a_pipe_is_no_file(sealed: Path, name: str) -> None:
    (sealed / name).rename(sealed / "behind")
    (sealed / name).symlink_to(sealed / "behind")
    with pytest.raises(ModelError, match=f"{name}: .*is a symbolic link: put the file itself"):
        unseal(sealed)
    (sealed / name).unlink()
    os.mkfifo(sealed / name)
    with pytest.raises(ModelError, match=f"{name}: .*is not a regular file"):
        unseal(sealed)


@pytest.mark.parametrize("name", ["manifest.json", "numbers", "text"])
def test_a_missing_file_is_named(sealed: Path, name: str) -> None:
    (sealed / name).unlink()
    with pytest.raises(ModelError, match=name):
        unseal(sealed)


def test_another_format_is_refused(sealed: Path) -> None:
    seal(sealed, ["text"], {"format": 2})
    with pytest.raises(ModelError, match="is of format 2, and this version reads 1"):
        unseal(sealed)


def test_a_manifest_cannot_reach_outside_its_directory(sealed: Path) -> None:
    (sealed.parent / "secret").touch()
    seal(sealed, ["text", "../secret"], {})
    with pytest.raises(ModelError, match=r"lists a file outside its directory, '\.\./secret'"):
        unseal(sealed)


def test_a_write_error_becomes_one_sentence_and_other_errors_stay(tmp_path: Path) -> None:
    sentence = "place: cannot write: Is a directory"
    with pytest.raises(RegardError, match=sentence), refusing_write_errors(Path("place")):
        tmp_path.open("w")
    with pytest.raises(KeyError), refusing_write_errors(Path("place")):
        raise KeyError


def test_only_temporary_names_are_removed(tmp_path: Path) -> None:
    for name in (".a.7.tmp", ".lock", "b.tmp", ".c.1f.partial", ".c.1f.earlier"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inside").touch()
    (tmp_path / ".file.7.tmp").touch()
    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path / "missing")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "b.tmp"]


def test_the_instants_of_these_tests_are_counted(tmp_path: Path) -> None:
    seen: list[str] = []
    with at_instant(2, lambda: seen.append("second")):
        (tmp_path / "a").touch()
        assert not seen
        (tmp_path / "a").rename(tmp_path / "b")
        assert seen == ["second"]
        (tmp_path / "b").unlink()
    assert seen == ["second"]
