"""`regard claims`: tables, progress, and what it refuses."""

import json
from pathlib import Path

from cli.refusing import refused, regard
from regard.claims.registry import CLAIMS


def test_a_table_json_and_markdown(tmp_path: Path) -> None:
    command = [
        "claims",
        "convolutions",
        "--seeds",
        "2",
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "x"),
    ]
    done = regard(*command)
    assert done.status == 0, done.stderr
    assert "convolutions: holds" in done.stdout
    assert "2 of 2  convolutions, seed 2" in done.stderr
    as_json = json.loads(regard(*command, "--json", "--quiet").stdout)
    assert as_json == json.loads((tmp_path / "x" / "result.json").read_text())
    assert len(as_json["claims"][0]["findings"][0]["figures"][0]["values"]) == 2
    markdown = regard(*command, "--markdown", "--quiet")
    assert markdown.stdout.startswith("| claim | the paper says |")
    assert not markdown.stderr


def test_claims_are_listed_and_unknown_ones_refused(tmp_path: Path) -> None:
    listed = regard("claims", "--list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(CLAIMS)
    out = ["--out", str(tmp_path / "x")]
    assert "unknown claim scalin: did you mean scaling?" in refused("claims", "scalin", *out)
    assert "choose one" in refused("claims", "--json", "--markdown", *out)
    assert not (tmp_path / "x").exists()
