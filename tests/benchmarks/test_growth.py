"""The growth benchmark counts what it says and runs, and its records can be plotted."""

import json
import sys
from pathlib import Path

import growth
import plots
import pytest
from growth import Point

from run.killing import have_forks_served


def test_series_double_and_keep_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["growth.py"])
    found = growth.series(growth.parsed(), layers=3)
    by_length = found["train, n"]
    assert [p.length for p in by_length] == [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
    assert {p.held for p in by_length} == {2 * 4096}
    assert [p.rows for p in found["decode, sentences"]] == [1, 2, 4, 8, 16, 32, 64]
    assert Point("decode", 5, 32, 3).done == 5 * growth.STEPS


def test_growth_is_the_greatest_from_one_point_to_the_next() -> None:
    assert growth.growth([{"cost": cost} for cost in (4.0, 2.0, 3.0, 3.5)], "cost") == 1.5


def test_a_tiny_run_leaves_a_record_that_can_be_plotted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (
        "growth.py --shape tiny --longest 32 --sentences 2 --seconds 0 --threads 1 "
        f"--only encode decode --keep {tmp_path}"
    )
    monkeypatch.setattr(sys, "argv", command.split())
    have_forks_served()  # else the benchmark would start a server, with libraries of its choice
    growth.main()
    assert "decode, sentences" in capsys.readouterr().out
    (path,) = tmp_path.glob("*-growth.json")
    series = json.loads(path.read_text())["series"]
    assert [p["layers"] for p in series.pop("encode, layers")] == [1, 6]
    assert len(series) == 5
    for points in series.values():
        assert len(points) == 2
        assert all(p["microseconds_per_token"] > 0 for p in points)
        assert all(0 <= p["bytes_per_token"] < 1e6 for p in points)

    monkeypatch.setattr(sys, "argv", ["plots.py", f"--results={tmp_path}", f"--out={tmp_path}/out"])
    plots.main()
    names = {plot.name: plot.read_text() for plot in (tmp_path / "out").iterdir()}
    assert set(names) == {"growth-length.svg", "growth-one-row.svg", "growth-sentences.svg"}
    plots.main()
    assert names == {plot.name: plot.read_text() for plot in (tmp_path / "out").iterdir()}


def test_memory_too_little_to_be_measured_is_left_out() -> None:
    points = [
        {"rows": 1, "length": n, "microseconds_per_token": 2.0, "bytes_per_token": 0.0}
        for n in (16, 32)
    ]
    times, memory = plots.lines({"encode, n": points}, "n", "n").axes
    assert [list(line.get_ydata()) for line in times.get_lines()] == [[2.0, 2.0]]
    assert not memory.get_lines()


def test_the_newest_record_of_contenders_is_plotted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept(date: str, name: str) -> None:
        spread = {"median": 2.0, "low": 1.0, "high": 3.0}
        contenders = {name: {"tokens_per_second": spread}}
        path = tmp_path / f"{date}-training-small.json"
        path.write_text(json.dumps({"contenders": contenders}))

    kept("2001-02-03", "a new one")
    kept("2001-01-30", "an old one")
    monkeypatch.setattr(sys, "argv", ["plots.py", f"--results={tmp_path}", f"--out={tmp_path}"])
    plots.main()
    assert "a new one" in (tmp_path / "training-small.svg").read_text()
    assert "an old one" not in (tmp_path / "training-small.svg").read_text()
