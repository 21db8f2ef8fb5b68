"""The command that examples name can be run by a shell, and notes end no command."""

import os
import pty
import shlex
import sys

import pytest

from regard.cli.console import called, console, note
from regard.cli.progress import TrainingDisplay


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


def test_notes_that_nobody_reads_end_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        for _ in range(3):
            note("step 1")
        console().print("a bar")


def test_a_terminal_that_is_closed_ends_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, writing = pty.openpty()
    with os.fdopen(writing, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        console.cache_clear()
        with TrainingDisplay() as display:
            os.close(terminal)
            display({"event": "start", "steps": 9, "minutes": 0.0, "step": 0, "parameters": 1,
                     "pairs": 1, "vocabulary": 1, "batches_per_epoch": 1, "dtype": "float32",
                     "device": "cpu", "threads": 1})  # fmt: skip
            note("a note")
    console.cache_clear()
