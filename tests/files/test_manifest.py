"""A sealed directory is whole or not there, and no damage to it goes unnoticed."""

import itertools
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from files.limits import files_of_at_most
from regard.errors import ModelError, RegardError
from regard.files.manifest import replace_file, seal, unseal, write_sealed
from regard.files.tensors import write_tensors
from run.killing import full_at


def fill(folder: Path) -> None:
    (folder / "text").write_text("an old saying", "utf-8")
    write_tensors(folder / "numbers", {"a": torch.arange(35.0)})


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "made" / "whole"
    for n in itertools.count(1):
        with suppress(RegardError):
            if not full_at(n, write_sealed, path, fill, {"step": 3}):
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
        write_sealed(tmp_path / "made" / "whole", fill, {})
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_of_the_same_number_left_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / f".whole.{os.getpid()}.tmp").mkdir()
    (tmp_path / f".whole.{os.getpid()}.tmp" / "half").touch()
    write_sealed(tmp_path / "whole", fill, {})
    assert unseal(tmp_path / "whole")["files"].keys() == {"text", "numbers"}
    assert [p.name for p in tmp_path.iterdir()] == ["whole"]


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    write_sealed(tmp_path / "sealed", fill, {"step": 3})
    return tmp_path / "sealed"


@settings(deadline=None)  # a disk takes its time to sync
@given(st.data())
def test_no_changed_byte_goes_unnoticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damage") / "sealed"
    write_sealed(folder, fill, {"step": 3})
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


def test_a_file_is_not_replaced_beside_a_damaged_manifest(sealed: Path) -> None:
    assert replace_file(sealed, "new", b"1", step=4)
    assert unseal(sealed)["step"] == 4
    manifest = sealed / "manifest.json"
    manifest.write_text(damaged := manifest.read_text().replace('"step": 4', '"step": 5'))
    assert not replace_file(sealed, "new", b"2")
    assert manifest.read_text() == damaged
    assert (sealed / "new").read_bytes() == b"1"


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
