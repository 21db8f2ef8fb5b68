"""Table 4: a parser of gold trees, and one that also learns from the first one's trees."""

from pathlib import Path

import pytest

from regard.errors import DataError
from regard.paper import TABLE_4
from regard.reproduce import parsers
from regard.reproduce.parsers import parser_rows
from regard.reproduce.scales import Mini
from regard.reproduce.table4 import TABLE_4_EXPERIMENT
from regard.reproduce.tables import Study, write_tables
from regard.study.kept import do_all


def test_a_parser_and_its_pupil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in (("GOLD_TREES", 60), ("SILVER_TREES", 8), ("TEST_TREES", 3)):
        monkeypatch.setattr(parsers, name, count)
    tiny = parsers.MINI_PARSE.but(
        layers=1, d_model=32, d_ff=32, steps=3, validate_every=3, validate_sentences=1,
        vocabulary=500, beam=1,
    )  # fmt: skip
    monkeypatch.setattr(parsers, "MINI_PARSE", tiny)
    study = Study(Mini(), tmp_path / "t", (1,))
    TABLE_4_EXPERIMENT.prepare(study)
    gold, semi = TABLE_4_EXPERIMENT.tasks(study)
    assert semi.work() is None  # it waits for its teacher
    found = do_all([semi, gold], study.out)
    silver = (study.out / "trees/silver.mrg").read_text("utf-8").splitlines()
    assert len(silver) == 8
    assert all(line.startswith("( (") for line in silver)
    assert found["parser-semi", 1]["sentences"] == 3
    [table] = write_tables(study, [TABLE_4_EXPERIMENT])
    assert len(table.rows) == len(TABLE_4) + 2
    assert [row[-1] for row in table.rows[-2:]] == ["done", "done"]
    assert table.rows[4][:4] == (
        "Transformer (4 layers)", "WSJ only, discriminative, 40,000 gold trees", "WSJ section 23",
        "91.3",
    )  # fmt: skip
    assert {len(row) for row in table.rows} == {len(table.head)}


def test_real_trees_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGARD_DATA", raising=False)
    with pytest.raises(DataError, match=r"needs REGARD_DATA.*--scale mini"):
        parser_rows(Mini(name="small"), tmp_path)


def test_the_rows_of_real_trees(
    regard_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = parser_rows(Mini(name="small"), tmp_path)
    assert list(rows) == ["wsj", "wsj-semi", "craft"]
    for row in rows.values():
        files = row.files
        for path in (*files.trees, *files.valid_trees, *files.silver, row.test):
            assert path.is_file()
        assert row.recipe.search.beam == 21
