from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from regard.cli.prepare import prepare
from regard.data.pairs import Pairs
from regard.errors import DataError

COMMAND = typer.Typer()
COMMAND.command()(prepare)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for side in ("en", "de"):
        (tmp_path / side).write_text("".join(f"{side} {i}\n" for i in range(53)), "utf-8")
    return [
        *("--source", str(tmp_path / "en"), "--target", str(tmp_path / "de")),
        *("--out", str(tmp_path / "out")),
    ]


def test_results_go_to_stdout_and_progress_to_stderr(files: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(COMMAND, [*files, "--recipe", "base", "--set", "data.held_out=3"])
    assert result.exit_code == 0
    assert "50 pairs of 53" in result.stdout
    assert "3 held out" in result.stdout
    assert "53 pairs" in result.stderr
    assert all(stage in result.stderr for stage in ("checking", "learning", "encoding"))
    assert len(Pairs.open(tmp_path / "out", "train")) == 50


def test_quiet_says_nothing_on_stderr(files: list[str]) -> None:
    result = CliRunner().invoke(COMMAND, [*files, "-q"])
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_refusal_comes_before_anything_is_counted(files: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(COMMAND, [*files, "--source", str(tmp_path)])
    assert isinstance(result.exception, DataError)
    assert f"{tmp_path}: is a directory" in str(result.exception)
