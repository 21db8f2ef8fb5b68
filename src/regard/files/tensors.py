"""Named tensors in a safetensors file: a format that holds numbers and never code."""

import os
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from regard.errors import ModelError
from regard.files.regular import COPY_AGAIN, open_regular, reason

LONGEST_HEADER = 2**23
"""A file whose header has more bytes than this is refused; the base model's header has 20,000."""


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors to a file; if a tensor is a view, only the elements in the view are written.

    Raises OSError if the file cannot be written.
    """
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    path.touch()
    # safetensors makes a file that only its owner can read, so the mode from `touch` is set again.
    mode = path.stat().st_mode
    try:
        safetensors.torch.save_file(copies, path, metadata)
    except safetensors.SafetensorError as error:
        raise OSError(str(error)) from None
    path.chmod(mode)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by their names, on the CPU; no object is unpickled.

    Raises ModelError if the file is missing, cannot be read or is damaged.
    """
    try:
        with open_regular(path) as file:
            if int.from_bytes(file.read(8), "little") > LONGEST_HEADER:
                raise ValueError(f"its header has more than {LONGEST_HEADER // 2**20} MiB")
        if _is_utf8(path):
            return safetensors.torch.load_file(path)
        return safetensors.torch.load(path.read_bytes())  # safetensors opens only UTF-8 paths
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {reason(error)}: {COPY_AGAIN}") from None
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise ModelError(f"{path}: damaged or not safetensors: {error}: {COPY_AGAIN}") from None


def _is_utf8(path: Path) -> bool:
    try:
        os.fsencode(path).decode()
    except UnicodeDecodeError:
        return False
    return True
