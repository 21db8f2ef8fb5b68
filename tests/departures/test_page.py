"""docs/deviations.md is the print of the values."""

import subprocess
import sys
from pathlib import Path

from regard.departures.page import page
from regard.departures.table import DEPARTURES

PAGE = Path(__file__).parents[2] / "docs" / "deviations.md"


def test_the_page_is_the_print() -> None:
    """After a change: python -m regard.departures > docs/deviations.md."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_command_prints_it() -> None:
    command = [sys.executable, "-m", "regard.departures"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    assert done.stdout == page()


def test_a_departure_is_a_row_of_the_table() -> None:
    for number, departure in enumerate(DEPARTURES, 1):
        [row] = [line for line in page().splitlines() if line.startswith(f"| {number} | ")]
        assert row.count(" | ") == 6, f"a | in the texts of {departure.name}"
        assert departure.ours in row
