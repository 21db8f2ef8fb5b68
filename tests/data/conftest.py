"""The text that the tests of the preparation begin with."""

from pathlib import Path

import pytest

from data.preparing import Corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path)
