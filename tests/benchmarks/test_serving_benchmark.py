"""The serving benchmark runs, and reports no error where there is none."""

import json
import sys
from pathlib import Path

import pytest
import serving

from cli.conftest import made  # noqa: F401


def test_a_short_run_leaves_its_figures(
    made: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = f"serving.py {made / 'model'}=en-de --text {made / 'source.en'}"
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(sys, "argv", [*command.split(), "--seconds", "1", "--clients", "3"])
    serving.main()
    result = json.loads(capsys.readouterr().out)
    assert result["exit_status"] == 0
    assert list(result["runs"]) == ["one after another", "at once", "overload"]
    for run in result["runs"].values():
        assert set(run["statuses"]) <= {"200", "503"}
        assert set(run["health_statuses"]) == {"200"}
