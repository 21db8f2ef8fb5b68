"""Examples in docstrings run, and print what they say."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"


def has_examples(text: str) -> bool:
    """Whether there are any that run; those marked `+SKIP` would need a corpus or a model."""
    examples = doctest.DocTestParser().get_examples(text)
    return any(not example.options.get(doctest.SKIP) for example in examples)


WITH_EXAMPLES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if has_examples(path.read_text("utf-8"))
]


def test_there_are_examples() -> None:
    assert {"regard", "regard.recipe", "regard.schedule"} <= set(WITH_EXAMPLES)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name: str) -> None:
    failed, attempted = doctest.testmod(import_module(name))
    assert failed == 0
    assert attempted > 0
