"""Examples in docstrings run, and say what they print."""

import doctest
import importlib
import pkgutil

import pytest

import regard

MODULES = [
    m.name for m in pkgutil.walk_packages(regard.__path__, "regard.") if "__main__" not in m.name
]


@pytest.mark.parametrize("name", ["regard", *MODULES])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
