"""The command that examples name: a shell must be able to run it."""

import shlex
import sys

import pytest

from regard.cli.console import called


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("/my programs/bin/regard", ["/my programs/bin/regard"]),
        ("./regard", ["./regard"]),
        ("/my programs/regard/__main__.py", ["/my programs/bin/python", "-m", "regard"]),
    ],
)
def test_a_path_with_blanks(monkeypatch: pytest.MonkeyPatch, script: str, words: list[str]) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", [script])
    monkeypatch.setattr(sys, "executable", "/my programs/bin/python")
    assert shlex.split(called()) == words
