"""Fixtures that several test files share."""

import os
from pathlib import Path

import jaxtyping
import pytest

# Shapes in the signatures of what handles tensors are checked at each call of a test.
jaxtyping.install_import_hook(
    [
        f"regard.{module}"
        for module in (
            "attention",
            "data.batches",
            "kernels",
            "layers",
            "loss",
            "optimizer",
            "train",
            "transformer",
            "view",
        )
    ],
    "beartype.beartype",
)


@pytest.fixture(scope="session")
def regard_data() -> Path:
    """The folder of real corpora, as named by REGARD_DATA; the test is skipped without it."""
    folder = os.environ.get("REGARD_DATA")
    if not folder:
        pytest.skip("REGARD_DATA does not name a folder of corpora")
    path = Path(folder)
    if not path.is_dir():
        pytest.skip(f"REGARD_DATA={folder} is not a folder")
    return path
