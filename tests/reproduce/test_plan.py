"""A plan counts what the rows would cost; nothing is trained or written."""

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from cli.refusing import refused, regard
from regard.cost import flop
from regard.paper import BASE, TABLE_3, parameters
from regard.reproduce import plan
from regard.reproduce.plan import plan_lines, planned_rows
from regard.reproduce.registry import EXPERIMENTS, scale_named
from regard.reproduce.tables import Study


@pytest.fixture(autouse=True)
def speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores, which together are twice as fast as one."""
    monkeypatch.setattr(
        plan, "single_precision_speed", lambda device, threads: 1e12 / (threads + 1)
    )
    monkeypatch.setattr(plan, "choose_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(plan, "usable_cores", lambda: 2)


def test_rows_of_several_tables_are_planned_once(tmp_path: Path) -> None:
    study = Study(scale_named("mini"), tmp_path / "t", (1,))
    rows = {row.name: row for row in planned_rows(study, list(EXPERIMENTS.values()), 1)}
    assert set(TABLE_3) < set(rows)
    recipe = study.scale.base(study.out)
    base, vocabulary = rows["base"], recipe.tokenizer.vocabulary
    assert base.parameters == parameters(recipe.model, vocabulary)
    pairs = 0.9 * 1024 / 25
    expected = 1600 * pairs * sum(flop(recipe.model, vocabulary, [25], [25]))
    assert base.flop == pytest.approx(expected)
    assert base.seconds == base.flop / 1e12
    assert rows["big"].steps == 4800
    assert not study.out.exists()


def test_only_what_is_trained_is_counted(tmp_path: Path) -> None:
    """Table 2 of one seed trains base twice, for its ensemble; the figures need one model."""

    def trainings(table: str, *seeds: int, rows: Iterable[str] = ()) -> dict[str, int]:
        study = Study(scale_named("mini"), tmp_path / "t", seeds, frozenset(rows))
        return {row.name: row.trainings for row in planned_rows(study, [EXPERIMENTS[table]], 1)}

    assert trainings("table2", 1)["base"] == 2
    assert trainings("table2", 1)["big"] == 1
    assert trainings("table2", 1, 2)["base"] == 2
    assert trainings("table2", 1, rows=["big"]) == {"big": 1}
    assert trainings("table2", 1, rows=["base"]) == {"base": 2}
    recurrent = trainings("table2", 1, 2, 3, rows=["recurrent"])
    assert recurrent.pop("recurrent-chosen") == 2
    assert len(recurrent) == 5
    assert set(recurrent.values()) == {1}
    assert trainings("table3", 1, 2, rows=["A1", "base"]) == {"A1": 2, "base": 2}
    assert trainings("figures", 1, 2, 3) == {"base": 1}
    assert trainings("table4", 1, 2, 3) == {"parser-gold": 3, "parser-semi": 3}


def test_a_process_has_one_thread_and_a_core(tmp_path: Path) -> None:
    study = Study(scale_named("mini"), tmp_path / "t", (1,))

    def hours(table: str, processes: int) -> float:
        *_, last = plan_lines(study, [EXPERIMENTS[table]], processes, 1e6)
        return float(last.rpartition(": ")[2].replace(",", "")) / 1e6

    gold, _ = planned_rows(study, [EXPERIMENTS["table4"]], 1)
    assert gold.seconds == gold.flop / 1e12
    assert hours("table4", 1) == pytest.approx(2 * gold.seconds / 3600, rel=1e-4)
    assert hours("table4", 2) == hours("table4", 1)  # each with one thread
    assert hours("table4", 16) == hours("table4", 2)
    one, two = hours("figures", 1), hours("figures", 2)  # one of the two processes has no work
    assert two == pytest.approx(2 * one, rel=1e-4)


def test_the_papers_base_takes_twelve_hours_on_its_machine(tmp_path: Path) -> None:
    study = Study(scale_named("paper"), tmp_path / "t", (1,))
    rows = {row.name: row for row in planned_rows(study, [EXPERIMENTS["table3"]], 1)}
    assert rows["base"].p100_hours == pytest.approx(12)
    assert rows["base"].steps == BASE.training.steps
    assert rows["big"].p100_hours > 3.5 * 24  # it had larger products, which are faster
    assert "took 3.5 days" in plan_lines(study, [EXPERIMENTS["table3"]], 1, None)[-1]


def test_the_command(tmp_path: Path) -> None:
    out = ["--out", tmp_path / "t"]
    command = ["reproduce", "table3", "--scale", "mini", "--seeds", "3", "--jobs", "2", *out]
    lines = regard(*command, "--plan", "--price", "7").stdout.splitlines()
    assert len(lines) == 1 + len(TABLE_3) + 2
    assert lines[-2].startswith("60 trainings of 20 rows: ")
    assert lines[-1].startswith("at 7 an hour of this machine: ")
    assert "--minutes 5: it is for --scale small" in refused(*command, "--minutes", "5")
    assert not (tmp_path / "t").exists()
