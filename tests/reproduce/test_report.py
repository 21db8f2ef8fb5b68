"""The page of what reproduces, in English and Korean."""

from pathlib import Path

import pytest

from regard.reproduce.report import write_report
from regard.reproduce.scales import Mini
from regard.reproduce.sentences import PAPER_SENTENCES
from regard.reproduce.tables import GrowingTable
from reproduce.test_sentences import table_3

TABLE = GrowingTable(
    "Table 3", ("row", "BLEU"), (("base", "51 | x"),), ("A note.",),
    table_3({"base": [50, 51, 52], "A1": [48, 49, 51]})["table3"], "",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("results.md", "| 8 heads have a higher BLEU than one | {} | holds |"),
        ("results.ko.md", "| 헤드 8개의 BLEU가 1개보다 높다 | {} | 성립 |"),
    ],
)  # fmt: skip
def test_the_page(tmp_path: Path, name: str, expected: str) -> None:
    command = "regard reproduce table3 --scale mini --seeds 3"
    write_report(tmp_path / name, Mini(), command, {"table3": TABLE})
    page = (tmp_path / name).read_text("utf-8")
    assert expected.format("+0.90 | +1.67 (+0.69 … +2.64) | +") in page
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(PAPER_SENTENCES) + 3
    assert f"`{command} --report " in page
    assert page.count('"While single-head attention') == 1  # once for its two statements
    assert "| base | 51 / x |" in page
    assert page.endswith("A note.\n")
