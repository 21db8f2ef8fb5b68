"""`regard help`: topics, commands, and the pager of a terminal."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from cli.refusing import refused, regard
from regard.cli.help import ALIASES
from regard.cli.main import main
from regard.recipe import Recipe

DOCS = Path(__file__).parents[2] / "docs"
TOPICS = sorted(page.stem for page in DOCS.glob("*.md") if "." not in page.stem)


def shown(*argv: str) -> str:
    result = regard("help", *argv)
    assert result.status == 0, result
    assert result.stderr == ""
    return result.stdout


def in_a_terminal(*argv: str, **variables: str) -> str:
    """The output of a command whose standard output is a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "regard", *argv]
    environment = {"TERM": "xterm-256color", "COLUMNS": "60", "LINES": "20"} | variables
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | environment
    ) as process:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 4096):
                text += part
        except OSError:  # Linux tells so that the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 0, text
    return text.decode()


def test_the_list_has_every_page() -> None:
    listed = [line.split()[0] for line in shown().splitlines() if line.startswith("  ")]
    assert listed == TOPICS
    assert {"recipes", "time", "scores", "files", "serving", "exit-status"} <= set(TOPICS)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_its_page(topic: str) -> None:
    page = (DOCS / f"{topic}.md").read_text("utf-8")
    assert shown(topic).startswith(page)
    assert page.startswith("# "), "the list of topics shows the first line"


@pytest.mark.parametrize("encoding", ["latin-1", "euc-kr"])
def test_standard_output_is_utf_8_in_every_locale(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    monkeypatch.setattr(sys, "argv", ["regard", "help", "glossary"])
    main()
    sys.stdout.flush()
    page = (DOCS / "glossary.md").read_text("utf-8")
    assert not page.isascii()
    assert written.getvalue().decode("utf-8").startswith(page)


def test_another_name_leads_to_a_page() -> None:
    assert set(ALIASES.values()) <= set(TOPICS)
    assert not set(ALIASES) & set(TOPICS)
    assert shown("budget") == shown("Time") == shown("time.md")


def test_recipes_have_every_field() -> None:
    text = shown("recipes")
    for section, value in Recipe():
        assert f"## [{section}]" in text
        for name, default in value:
            assert f"- `{name} = {json.dumps(default)}`: " in text


def test_a_command_is_explained_as_by_its_own_option() -> None:
    assert "Usage: regard average [OPTIONS]" in shown("average")
    assert shown("average") == regard("average", "--help").stdout


def test_an_unknown_topic_is_refused() -> None:
    assert refused("help", "servng") == "unknown topic servng: did you mean serving?"
    assert "did you mean translate?" in refused("help", "translat")
    assert "unknown topic ../time" in refused("help", "../time")


def test_a_terminal_shows_the_page_laid_out(tmp_path: Path) -> None:
    pager = tmp_path / "paged"
    seen = in_a_terminal("help", "scores", PAGER=f"cat > {pager}; echo paged")
    assert seen.strip() == "paged"
    text = pager.read_text("utf-8")
    assert "\x1b[" in text
    assert "# Scores" not in text
    assert "Scores" in text
    plain = in_a_terminal("help", "scores", PAGER="cat", NO_COLOR="1")
    assert max(map(len, plain.splitlines())) > 40
    dumb = in_a_terminal("help", "exit-status", TERM="dumb")
    assert "\x1b" not in dumb
    assert "Exit status" in dumb
