"""Tables are made row by row, go on where they were stopped, and say what is not finished."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from regard.errors import DataError, Diverged
from regard.paper import TABLE_3
from regard.parts.kept import Finished, Measured, Task, do_all
from regard.recipe import Recipe
from regard.reproduce import rows, table3
from regard.reproduce.making import reproduce_tables, rows_in_training
from regard.reproduce.rows import state_of
from regard.reproduce.scales import Mini
from regard.reproduce.table2 import TABLE_2_EXPERIMENT
from regard.reproduce.table3 import TABLE_3_EXPERIMENT
from regard.reproduce.table4 import TABLE_4_EXPERIMENT
from regard.reproduce.tables import Experiment, GrowingTable, Study, all_tasks, write_tables
from regard.run.journal import read_journal
from reproduce.tiny import TINY

ROWS = ("base", "A1")


@pytest.fixture(autouse=True)
def two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table3, "TABLE_3", {row: TABLE_3[row] for row in ROWS})


def cells(study: Study) -> dict[str, list[str]]:
    """The cells of each row of table3.md."""
    lines = (study.out / "table3.md").read_text("utf-8").splitlines()
    table = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    return {row[0]: row for row in table[2:]}


def test_a_stopped_table_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, heard = Study(TINY, tmp_path / "t", (1,)), list[Finished]()

    def stop(done: Finished) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce_tables(study, [TABLE_3_EXPERIMENT], heard=stop)
    assert [row[-1] for row in cells(study).values()] == ["done", "seed 1: waiting"]
    real = rows.train

    def interrupted(**given: Any) -> Path:
        def at_step(record: dict[str, Any]) -> None:
            if record["event"] == "save":
                raise KeyboardInterrupt

        return real(**given, progress=at_step)

    monkeypatch.setattr(rows, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce_tables(study, [TABLE_3_EXPERIMENT])
    write_tables(study, [TABLE_3_EXPERIMENT])
    assert cells(study)["A1"][-1] == "seed 1: step 2 of 4"
    for seeds in ((1,), (2,)):  # for example, a teacher is trained with a seed of its own
        running = rows_in_training(replace(study, seeds=seeds), [TABLE_3_EXPERIMENT])
        assert "A1, seed 1: step 2 of 4" in running
    monkeypatch.setattr(rows, "train", real)
    [table] = reproduce_tables(study, [TABLE_3_EXPERIMENT], heard=heard.append)
    assert [(done.part, done.number) for done in heard] == [("base", 1), ("A1", 2)]
    assert [row[-1] for row in cells(study).values()] == ["done"] * 2
    starts = read_journal(tmp_path / "t/runs/A1-1/journal.jsonl")
    assert [r["step"] for r in starts if r["event"] == "start"] == [0, 2]
    values = json.loads((tmp_path / "t/table3.json").read_text("utf-8"))
    assert values == table.values
    assert values["rows"]["A1"]["seeds"]["1"]["steps"] == 4
    assert cells(study)["A1"][1] == "h 1, d_k 32, d_v 32"
    assert cells(study)["A1"][2:6] == ["5.29", "24.9", "65", "65.11"]
    page = (tmp_path / "t/index.html").read_text("utf-8")
    assert page.count("<tr>") == 1 + 2
    assert "<svg" in page


def test_no_recipe_is_chosen_while_nothing_is_trained(tmp_path: Path) -> None:
    """At scale small, choosing a recipe takes minutes; the main thread may be choosing it."""

    class Choosing(Mini):
        def base(self, out: Path) -> Recipe:
            raise AssertionError("chosen once more")

    study = Study(Choosing(), tmp_path, (1,))
    assert rows_in_training(study, [TABLE_3_EXPERIMENT]) == []


def _one() -> Measured:
    return {"one": 1.0}


def _two_parts(study: Study) -> list[Task]:
    return [Task(part, 1, "", _one) for part in ("a", "b")]


def _sum(study: Study, numbers: Any) -> GrowingTable:
    total = sum(found["one"] for found in numbers.values())
    return GrowingTable("Parts", ("sum",), ((str(total),),), (), {"sum": total}, "")


def _nothing(study: Study) -> dict[str, Any]:
    study.out.mkdir(exist_ok=True)
    return {}


PARTS = Experiment("parts", _nothing, _two_parts, _sum, _nothing)


def test_worker_processes_write_the_table_anew_after_each_part(tmp_path: Path) -> None:
    study = Study(TINY, tmp_path / "t", (1,))
    [table] = reproduce_tables(study, [PARTS], jobs=2)
    assert table.values == {"sum": 2.0}


def test_seeds_are_columns_and_add_to_those_that_are_there(tmp_path: Path) -> None:
    one, two = (Study(TINY, tmp_path / "t", tuple(range(1, n + 1))) for n in (1, 2))
    TABLE_3_EXPERIMENT.prepare(one)
    [first, *_] = TABLE_3_EXPERIMENT.tasks(one)
    do_all([first], one.out)
    kept = (tmp_path / "t/parts/base-1.json").stat().st_mtime_ns
    [again, _, second, _] = TABLE_3_EXPERIMENT.tasks(two)
    do_all([again, second], two.out, jobs=1)
    [table] = write_tables(two, [TABLE_3_EXPERIMENT])
    assert (tmp_path / "t/parts/base-1.json").stat().st_mtime_ns == kept
    assert {"BLEU, seed 1", "BLEU, seed 2", "BLEU, mean"} <= set(table.head)
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert table.values["rows"]["base"]["seeds"]["2"]["steps"] == 4
    assert table.values["rows"]["A1"]["seeds"]["2"] is None
    write_tables(replace(two, seeds=tuple(range(1, 10))), [TABLE_3_EXPERIMENT])
    [fewer] = write_tables(one, [TABLE_3_EXPERIMENT])
    assert fewer == table  # without the seeds that nothing was trained with
    with pytest.raises(DataError, match="was begun at scale mini, not other: choose another --out"):
        TABLE_3_EXPERIMENT.prepare(Study(Mini(TINY.recipe, name="other"), two.out, (1,)))
    longer = Study(Mini(TINY.recipe.but(steps=5)), two.out, (1,))
    with pytest.raises(DataError, match="other settings"):
        write_tables(longer, [TABLE_3_EXPERIMENT])
    (two.out / "scale.txt").write_bytes(b"\xff\n")  # damaged
    with pytest.raises(DataError, match="was begun at scale \ufffd, not mini: choose another"):
        TABLE_3_EXPERIMENT.prepare(two)


def test_only_the_named_rows_are_trained(tmp_path: Path) -> None:
    one = Study(TINY, tmp_path / "t", (1,), frozenset({"base"}))
    two = Study(TINY, tmp_path / "t", (1, 2), frozenset({"A1"}))
    [table] = reproduce_tables(one, [TABLE_3_EXPERIMENT])
    assert {row[0]: row[-1] for row in table.rows} == {"base": "done", "A1": "seed 1: waiting"}
    assert state_of(two.out, "A1", {1: None, 2: None}, 4) == "seeds 1, 2: waiting"
    [table] = reproduce_tables(two, [TABLE_3_EXPERIMENT])
    assert {row[0]: row[-1] for row in table.rows} == {"base": "seed 2: waiting", "A1": "done"}


@pytest.mark.parametrize("folder", ["corpus", "data", "trees"])
def test_text_that_no_study_wrote_is_neither_overwritten_nor_used(
    tmp_path: Path, folder: str
) -> None:
    own = tmp_path / folder / "train.de"
    own.parent.mkdir()
    own.write_text("Mein Text.\n")
    for one in (TABLE_3_EXPERIMENT, TABLE_4_EXPERIMENT):
        with pytest.raises(DataError, match=f"{folder}: is not empty: choose another --out"):
            one.prepare(Study(TINY, tmp_path, (1,)))
    assert own.read_text() == "Mein Text.\n"
    assert not (tmp_path / "scale.txt").exists()


def test_the_drawing_compares_seed_by_seed(tmp_path: Path) -> None:
    """Seed 1 of A1 is one BLEU better than base; that seed 2 of base is better changes nothing."""
    base, better, row = ({"bleu": x, "perplexity": 1.0, "accuracy": 50.0} for x in (10, 20, 11))
    one, two = (Study(TINY, tmp_path, tuple(range(1, n + 1))) for n in (1, 2))
    whole = {("base", 1): base, ("A1", 1): row}
    tables = [
        TABLE_3_EXPERIMENT.table(one, whole),
        TABLE_3_EXPERIMENT.table(two, whole | {("base", 2): better}),
    ]
    assert {table.rows[1][table.head.index("BLEU - base")] for table in tables} == {"1.00"}
    assert tables[0].drawing == tables[1].drawing
    assert tables[0].drawing.count("<circle") == 2


def test_a_table_of_another_command_stays_on_the_page(tmp_path: Path) -> None:
    """The other command, which has more seeds, begins while this one is at work."""
    study, other = (Study(TINY, tmp_path, tuple(range(1, n + 1))) for n in (1, 3))

    def work() -> Measured:
        write_tables(other, [TABLE_2_EXPERIMENT])
        return {"x": 1.0}

    table = GrowingTable("This one", ("x",), (), (), {}, "")
    one = Experiment("one", lambda _: None, lambda _: [Task("x", 1, "", work)], lambda *_: table,
                     lambda _: {})  # fmt: skip
    assert reproduce_tables(study, [one]) == [table]
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "<h2>This one</h2>" in page
    assert "<h2>Table 2: " in page
    assert json.loads((tmp_path / "table2.json").read_text("utf-8"))["seeds"] == [1, 2, 3]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"seeds": null}', '{"seeds": ["x"]}'])
def test_the_seeds_of_a_damaged_table_are_not_forgotten_in_silence(
    tmp_path: Path, content: str
) -> None:
    study, damaged = Study(TINY, tmp_path, (1, 2)), tmp_path / "table3.json"
    damaged.write_text(content)
    (tmp_path / "table3.md").touch()
    for named in ([TABLE_3_EXPERIMENT], []):
        with pytest.raises(DataError, match=r"^\S+table3.json: is damaged, so .*: remove it, "):
            write_tables(study, named, [TABLE_3_EXPERIMENT])
    assert damaged.read_text() == content
    damaged.unlink()
    damaged.mkdir()
    with pytest.raises(DataError, match=r"table3.json: cannot be read: Is a directory$"):
        write_tables(study, [], [TABLE_3_EXPERIMENT])
    damaged.rmdir()
    [table] = write_tables(study, [], [TABLE_3_EXPERIMENT])
    assert table.values["seeds"] == [1, 2]


def test_a_row_that_diverges_guesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(**_: object) -> None:
        raise Diverged("step 1: the loss is nan")

    monkeypatch.setattr(rows, "train", diverge)
    found = rows.train_row(tmp_path / "run", tmp_path, TINY.recipe)
    assert found == {"perplexity": 400, "accuracy": 0, "bleu": 0, "diverged": 1}


def test_a_row_of_two_tables_is_trained_once(tmp_path: Path) -> None:
    study = Study(TINY, tmp_path, (1, 2))
    tasks = all_tasks(study, [TABLE_3_EXPERIMENT, TABLE_3_EXPERIMENT])
    assert [(task.part, task.seed) for task in tasks] == [(r, s) for s in (1, 2) for r in ROWS]
    assert all(isinstance(task.work, partial) for task in tasks)  # it can go to another process
