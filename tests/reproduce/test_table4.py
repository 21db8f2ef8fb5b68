"""Table 4: a parser of gold trees, and one that also learns from the first one's trees."""

from pathlib import Path

import pytest

from regard.errors import DataError
from regard.paper import TABLE_4, WSJ, WSJ_SEMI
from regard.parts.kept import do_all
from regard.reproduce import parsers
from regard.reproduce.parsers import parser_rows, refuse_without_trees
from regard.reproduce.scales import Mini
from regard.reproduce.table1 import TABLE_1_EXPERIMENT
from regard.reproduce.table4 import TABLE_4_EXPERIMENT, train_parser
from regard.reproduce.tables import Study, write_tables


def test_a_teacher_is_trained_with_its_own_seed_whatever_the_seeds_are(tmp_path: Path) -> None:
    tasks = TABLE_4_EXPERIMENT.tasks(Study(Mini(), tmp_path, (2, 3)))
    assert (tasks[0].part, tasks[0].seed) == ("parser-gold", 1)
    assert [one.seed for one in tasks].count(1) == 1
    assert len(tasks) == 1 + len(TABLE_4_EXPERIMENT.tasks(Study(Mini(), tmp_path, (1, 2))))


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


def test_the_pupil_of_a_parser_that_diverged(tmp_path: Path) -> None:
    """Nobody writes its silver trees: it is a result, too, so that the table can be finished."""
    (tmp_path / "parts").mkdir()
    kept = '{"settings": "", "numbers": {"diverged": 1.0}}'
    (tmp_path / "parts/parser-gold-1.json").write_text(kept)
    for seed in (1, 2):
        found = train_parser(Mini(), tmp_path, "semi", seed)
        assert found == {"perplexity": 1500, "accuracy": 0, "f1": 0, "diverged": 1, "left_out": 0}


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_missing_trees_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: str
) -> None:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    study = Study(Mini(name=scale), tmp_path / "t", (1,))
    with pytest.raises(DataError, match=r"train\.mrg: Table 4 needs these trees.*REGARD_DATA"):
        TABLE_4_EXPERIMENT.prepare(study)
    assert not study.out.exists()


def test_a_directory_has_one_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    (tmp_path / "wsj").mkdir()
    for name in ("train.mrg", "dev.mrg", "test.mrg", "silver.mrg.xz"):
        (tmp_path / "wsj" / name).touch()
    mini, paper = (Study(Mini(name=name), tmp_path / "t", (1,)) for name in ("mini", "paper"))
    TABLE_4_EXPERIMENT.prepare(mini)
    for one in (TABLE_1_EXPERIMENT, TABLE_4_EXPERIMENT):
        one.prepare(mini)
        with pytest.raises(DataError, match="begun at scale mini, not paper: choose another"):
            one.prepare(paper)


def test_a_table_4_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """It has trees, and no file that names its scale."""
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees/train.mrg").touch()
    (tmp_path / ".data-gold.lock").touch()
    TABLE_4_EXPERIMENT.prepare(Study(Mini(), tmp_path, (1,)))
    assert (tmp_path / "scale.txt").read_text("utf-8") == "mini\n"


def test_the_papers_parsers(tmp_path: Path) -> None:
    rows = TABLE_4_EXPERIMENT.recipes(Study(Mini(name="paper"), tmp_path, (1,)))
    assert rows == {"parser-wsj": WSJ, "parser-wsj-semi": WSJ_SEMI}


def test_the_rows_of_smaller_treebanks(
    regard_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_DATA", str(regard_data))
    rows = parser_rows(Mini(name="small"), tmp_path)
    assert list(rows) == ["wsj", "wsj-semi", "craft", "wsj-words", "craft-words"]
    refuse_without_trees(Mini(name="small"), rows.values())  # all are there
    assert {row.beam for row in rows.values()} == {21}
