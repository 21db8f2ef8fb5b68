"""`regard reproduce`: what it refuses, and a table through the command."""

from pathlib import Path

import pytest

from cli.refusing import refused, regard
from regard.reproduce import costs, table1
from regard.reproduce.layers import LAYERS
from regard.reproduce.making import reproduce_tables
from regard.reproduce.scales import Mini
from regard.reproduce.tables import Study


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.reproduce.making.reproduce_tables", lambda *_, **__: pytest.fail())
    out = ["--out", tmp_path / "x"]
    assert "unknown table table5: did you mean table" in refused("reproduce", "table5", *out)
    assert "unknown table table5" in refused("reproduce", "all", "table5", *out)
    assert "unknown scale big: it is one of mini, small, small-fr, paper" in refused(
        "reproduce", "table3", "--scale", "big", *out
    )
    assert "--price 2.5: it is for --plan: leave it out, or add --plan" in refused(
        "reproduce", "table3", "--price", "2.5", *out
    )
    assert "--report r.md: --plan makes no table: leave out one of the two" in refused(
        "reproduce", "table3", "--plan", "--report", "r.md", *out
    )
    assert "unknown row A1: it is one of dilated, recurrent" in refused(
        "reproduce", "table2", "--rows", "base,A1", *out
    )
    assert "--rows A1: it is for table2 and table3: leave it out" in refused(
        "reproduce", "table1", "--rows", "A1", *out
    )
    assert not (tmp_path / "x").exists()


def test_table_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NS", (8, 16)), ("DS", (4, 8)), ("PATHS", (9,)), ("CHAINS", (8, 16)),
                        ("TIMED_N", 16), ("TIMED_DS", {})):  # fmt: skip
        monkeypatch.setattr(table1, name, value)
    monkeypatch.setattr(table1, "_notes", lambda found: ("note",))
    monkeypatch.setattr(costs, "TIMED_FOR", 0.0)
    command = ["reproduce", "table1", "--jobs", "1", "--out", tmp_path / "x"]
    done = regard(*command)
    assert done.status == 0, done.stderr
    assert "7 of 7  table1-cost-separable, seed 1" in done.stderr
    assert "| dilated | O(k n d^2) | 1.00 | 2.00 | O(1) | 0.00 |" in done.stdout
    assert done.stdout.count("| done |") == len(LAYERS)
    assert (tmp_path / "x" / "table1.svg").exists()
    again = regard(*command, "--quiet")
    assert again.stdout == done.stdout
    page = tmp_path / "page.md"
    both = regard(*command, "table1", "--seeds", "2", "--report", page)  # once, though named twice
    assert both.stdout == done.stdout
    said = "`regard reproduce table1 table1 --scale mini --seeds 2 --report FILE` wrote this page."
    assert said in page.read_text("utf-8")
    reproduce_tables(Study(Mini(), tmp_path / "x", (1,)), [])  # another table's command
    assert "Table 1: the cost of a layer" in (tmp_path / "x" / "index.html").read_text("utf-8")
