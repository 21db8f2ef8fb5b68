"""A plan counts what the rows would cost; nothing is trained or written."""

from pathlib import Path

import pytest

from cli.refusing import refused, regard
from regard.cost import flop
from regard.paper import BASE, TABLE_3, parameters
from regard.reproduce import plan
from regard.reproduce.plan import planned_rows
from regard.reproduce.registry import EXPERIMENTS, scale_named
from regard.reproduce.tables import Study


@pytest.fixture(autouse=True)
def speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "single_precision_speed", lambda device: 1e12)


def test_rows_of_several_tables_are_planned_once(tmp_path: Path) -> None:
    study = Study(scale_named("mini"), tmp_path / "t", (1,))
    rows = {row.name: row for row in planned_rows(study, list(EXPERIMENTS.values()))}
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


def test_the_papers_base_takes_twelve_hours_on_its_machine(tmp_path: Path) -> None:
    study = Study(scale_named("paper"), tmp_path / "t", (1,))
    rows = {row.name: row for row in planned_rows(study, [EXPERIMENTS["table3"]])}
    assert rows["base"].p100_hours == pytest.approx(12)
    assert rows["base"].steps == BASE.training.steps
    assert rows["big"].p100_hours > 3.5 * 24  # it had larger products, which are faster


def test_the_command(tmp_path: Path) -> None:
    out = ["--out", tmp_path / "t"]
    command = ["reproduce", "table3", "--scale", "mini", "--seeds", "3", "--jobs", "2", *out]
    lines = regard(*command, "--plan", "--price", "7").stdout.splitlines()
    assert len(lines) == 1 + len(TABLE_3) + 2
    assert lines[-2].startswith("20 rows of 3 seeds: ")
    assert lines[-1].startswith("at 7 an hour of this machine: ")
    assert "--minutes 5: it is for --scale small" in refused(*command, "--minutes", "5")
    assert not (tmp_path / "t").exists()
