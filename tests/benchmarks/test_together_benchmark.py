"""The benchmark of a few sentences in one call runs."""

import re
import sys
from pathlib import Path

import pytest
import together

from untrained import LINES


def test_it_prints_a_time_for_each_number_of_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source.en"
    source.write_text("\n".join(LINES) + "\n", "utf-8")
    command = f"together.py --source {source} --shape tiny --precision fp32 --sentences 1 2"
    monkeypatch.setattr(sys, "argv", command.split())
    together.main()
    assert re.fullmatch(
        r"1 sentences: \d+\.\d ms\n2 sentences: \d+\.\d ms\n", capsys.readouterr().out
    )
