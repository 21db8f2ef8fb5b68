"""The stream of the built-in corpus, made once for the tests of its grammar."""

import itertools

import pytest

from regard.corpus import Example, examples


@pytest.fixture(scope="package")
def stream() -> list[Example]:
    """The first examples of stream 1."""
    return list(itertools.islice(examples(1), 20_000))
