"""Tensors come back as they were written."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import ModelError
from regard.files.tensors import read_tensors, write_tensors

TENSORS = {
    "view": torch.arange(35.0).view(5, 7)[:, 2:5],
    "transposed": torch.arange(6.0).view(2, 3).t(),
    "half": torch.tensor([1.5, -0.0, torch.inf], dtype=torch.bfloat16),
    "step": torch.tensor(7.0),
    "bytes": torch.tensor([0, 255], dtype=torch.uint8),
}


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


def test_a_path_need_not_be_utf_8(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    write_tensors(path, {"a": torch.arange(3.0)})
    assert read_tensors(path)["a"].tolist() == [0, 1, 2]


@given(st.binary(max_size=37))
def test_what_is_no_safetensors_is_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"junk\.safetensors"):
        read_tensors(path)


def test_a_missing_file_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="gone: cannot be read: No such file"):
        read_tensors(tmp_path / "gone")
