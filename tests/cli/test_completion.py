"""Completion by the shells: their scripts, their questions, and real shells where there are any."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.refusing import regard

SHELLS = ["bash", "zsh", "fish"]
PLACES = {
    "bash": ".bash_completions/regard.sh",
    "zsh": ".zfunc/_regard",
    "fish": ".config/fish/completions/regard.fish",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home, with a program `regard` of this environment in its bin."""
    program = tmp_path / "bin" / "regard"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m regard "$@"\n')
    program.chmod(0o755)
    return tmp_path


def ran(home: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"HOME": str(home), "PATH": path} | variables
    environment.pop("XDG_CONFIG_HOME", None)
    return subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, timeout=60
    )


def completed(shell: str, line: str) -> list[str]:
    """The words that a shell is offered when it asks how a line may go on."""
    question = {
        "_REGARD_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in question.items():
            patch.setenv(name, value)
        result = regard()
    assert (result.status, result.stderr) == (0, "")
    if shell == "zsh":
        return re.findall(r'^(?:_arguments .*\(\()?"([^"]*)"', result.stdout, flags=re.MULTILINE)
    return [offer.split("\t")[0] for offer in result.stdout.splitlines() if offer]


@pytest.mark.parametrize("shell", SHELLS)
def test_words_are_completed(shell: str) -> None:
    assert completed(shell, "regard tr") == ["train", "translate"]
    assert completed(shell, "regard train --rec") == ["--recipe"]
    assert completed(shell, "regard train --recipe sma") == ["small", "small-parse"]
    assert completed(shell, "regard help exit") == ["exit-status"]
    completed(shell, "regard nosuch t")  # whatever is offered, there is no traceback
    assert completed(shell, "regard translate runs/t") == [], "the shell completes files"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_installed_in_the_home_alone(home: Path, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}: apt-get install {shell}")
    shown = ran(home, shell, "-c", "regard --show-completion; true")
    printed = ran(home, "regard", _REGARD_COMPLETE=f"source_{shell}")
    assert shown.stdout.strip() == printed.stdout.strip()
    assert "_REGARD_COMPLETE=complete_" in printed.stdout
    installed = ran(home, shell, "-c", "regard --install-completion; true")
    assert f"{shell} completion installed" in installed.stdout, installed.stderr
    assert (home / PLACES[shell]).read_text().strip() == printed.stdout.strip()


def test_bash_completes_by_the_installed_script(home: Path) -> None:
    ran(home, "bash", "-c", "regard --install-completion; true")
    line = "regard tra"
    ask = f"""source ~/.bashrc
        COMP_WORDS=({line}) COMP_CWORD=1 COMP_LINE='{line}'
        _regard_completion regard; echo ${{COMPREPLY[@]}}; complete -p regard"""
    done = ran(home, "bash", "--norc", "-c", ask)
    assert done.stdout.splitlines()[0] == "train translate", done.stderr
    assert "-o default" in done.stdout, "files are completed where there is no other answer"


def test_fish_completes_by_the_installed_script(home: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("there is no fish: apt-get install fish")
    ran(home, "fish", "-c", "regard --install-completion; true")
    done = ran(home, "fish", "-c", "complete --do-complete 'regard tra'")
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["train", "translate"]


@pytest.mark.parametrize("instruction", ["nonsense", "source_tcsh", "complete_tcsh"])
def test_a_wrong_instruction_is_refused(monkeypatch: pytest.MonkeyPatch, instruction: str) -> None:
    monkeypatch.setenv("_REGARD_COMPLETE", instruction)
    result = regard()
    assert (result.status, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
